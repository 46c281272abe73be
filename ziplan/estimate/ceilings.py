"""The article's quantities for a machine and a plan: the test of each tier, and the ceilings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ziplan.estimate.rates import Rates
from ziplan.estimate.result import Limits, TierTest
from ziplan.hardware.cluster import Cluster
from ziplan.hardware.node import Tier
from ziplan.laws.ceilings import (
    max_d_model_by_width,
    max_params_by_capacity,
    max_params_by_compute,
    tier_capacity,
    training_time,
    training_tokens,
)
from ziplan.laws.counts import layer_bytes, tokens_per_rank
from ziplan.laws.intensity import (
    hiding_margin,
    intensity_per_token,
    machine_balance,
    parameter_intensity,
    required_tokens,
    striped_hiding_margin,
)
from ziplan.laws.law import Derivation, maximum
from ziplan.laws.partition import owner_fetch_time, striped_fetch_time
from ziplan.laws.prefetch import layer_forward_time, prefetch_depth
from ziplan.laws.traffic import streamed_bytes_per_param
from ziplan.plan import Checkpointing, Plan
from ziplan.workload.model import Model
from ziplan.workload.training import Workload

PARAM_BYTES, PARAM_LOADS = 2.0, 2.0
"""The article's two climbs of 16-bit parameters per micro-step."""

FULL = Checkpointing.FULL

GREATEST_TILE_COUNT, TILE_BUFFERS = 16.0, 2.0
TIME_BUDGET = 365.25 * 86_400.0
TOKENS_PER_PARAM = 20.0

STATE_BYTES_PER_PARAM = 16.0
"""The article's state: 2 of parameters, 2 of gradients, 12 of optimizer."""


def tier_tests(
    derivation: Derivation, cluster: Cluster, workload: Workload, plan: Plan, rates: Rates
) -> dict[str, TierTest]:
    """Each tier against the bar that streaming parameters from it sets (article: Applying the test).

    All parameters are streamed, those of experts too, and a token computes with the active ones alone; of
    frozen ones nobody computes the gradients.
    """
    apply, sustained = derivation.apply, rates.of("gpu") or math.nan
    model = workload.model
    active = model.active_block_params / model.block_params if model.block_params else 1.0
    sweeps = 6.0 - 2.0 * _frozen_share(model) + (2.0 if plan.activation_checkpointing == FULL else 0.0)
    streamed = apply(streamed_bytes_per_param, param_bytes_per_param=PARAM_BYTES, param_loads=PARAM_LOADS)
    per_token = apply(
        intensity_per_token,
        flops_per_param_token=active * sweeps,
        streamed_bytes_per_param=streamed,
    )
    tokens = apply(
        tokens_per_rank,
        micro_batch_size=plan.micro_batch_size,
        sequence_length=float(workload.training.sequence_length),
    )
    intensity = apply(parameter_intensity, intensity_per_token=per_token, tokens_per_rank=tokens)
    layer = apply(layer_bytes, layer_params=float(model.layer_params), param_bytes_per_param=PARAM_BYTES)
    forward = apply(
        layer_forward_time,
        params=float(model.active_block_params),
        tokens_per_rank=tokens,
        forward_flops_per_param_token=2.0,
        layer_count=float(model.layer_count),
        sustained_flops_per_s=sustained,
    )
    shared = _Demand(sustained, per_token, intensity, layer, forward)
    return {
        name: _tier_test(apply, rates, name, plan.dp_degree if tier.scope == "node" else 1.0, shared)
        for name, tier in cluster.node.tiers.items()
    }


def _frozen_share(model: Model) -> float:
    """Share of the layers' parameters that training leaves as they are."""
    trained = sum(o.params * o.count for o in model.operators if o.block and o.trainable)
    return 1.0 - trained / model.block_params if model.block_params else 0.0


class _Demand(NamedTuple):
    """What every tier is held against: intensity, a layer's bytes, and its time in forward."""

    sustained: float
    per_token: float
    intensity: float
    layer: float
    forward: float


def _tier_test(
    apply: Callable[..., float], rates: Rates, name: str, striped: float, asked: _Demand
) -> TierTest:
    """One tier's test; `striped` ranks each fetch their own slice of a layer from it."""
    bandwidth = rates.of(f"{name}.read") or math.nan
    balance = apply(machine_balance, name, sustained_flops_per_s=asked.sustained, link_bandwidth=bandwidth)
    margin = (
        apply(
            striped_hiding_margin,
            name,
            arithmetic_intensity=asked.intensity,
            machine_balance=balance,
            dp_degree=striped,
        )
        if striped > 1
        else apply(hiding_margin, name, arithmetic_intensity=asked.intensity, machine_balance=balance)
    )
    owner = apply(owner_fetch_time, name, layer_bytes=asked.layer, link_bandwidth=bandwidth)
    fetch = apply(
        striped_fetch_time, name, layer_bytes=asked.layer, dp_degree=striped, link_bandwidth=bandwidth
    )
    return TierTest(
        bandwidth=bandwidth,
        machine_balance=balance,
        arithmetic_intensity=asked.intensity,
        required_tokens=apply(
            required_tokens, name, machine_balance=balance, intensity_per_token=asked.per_token
        ),
        hiding_margin=margin,
        owner_fetch_time=owner,
        striped_fetch_time=fetch,
        prefetch_depth_owner=apply(
            prefetch_depth, f"{name}, owner", fetch_time=owner, layer_time=asked.forward
        ),
        prefetch_depth_striped=apply(
            prefetch_depth, f"{name}, striped", fetch_time=fetch, layer_time=asked.forward
        ),
    )


def limits(
    derivation: Derivation,
    cluster: Cluster,
    workload: Workload,
    plan: Plan,
    rates: Rates,
    achieved_flops_per_s: float,
    homes: Sequence[str],
) -> Limits:
    """The three ceilings of the article, and how long this model trains at the predicted rate.

    `homes` are the tiers that the runtime can keep states in, nearest first: the last is what they fill.
    """
    apply, node, model = derivation.apply, cluster.node, workload.model
    sustained = rates.of("gpu") or math.nan
    outermost = node.tiers[homes[-1]]
    capacity = apply(
        tier_capacity,
        "the outermost tier of all nodes",
        node_count=float(cluster.nodes),
        instances_per_node=float(node.gpus_per_node) if outermost.scope == "gpu" else 1.0,
        instance_capacity=outermost.capacity,
    )
    gpu = node.tiers[node.gpu_tier]
    tokens = plan.micro_batch_size * workload.training.sequence_length
    wanted = apply(training_tokens, params=float(model.params), tokens_per_param=TOKENS_PER_PARAM)
    return Limits(
        max_params_by_capacity=apply(
            max_params_by_capacity,
            capacity=maximum(0.0, capacity - _of_companions(workload)),
            state_bytes_per_param=STATE_BYTES_PER_PARAM,
        ),
        max_d_model_by_width=_width(derivation, workload, gpu, tokens, GREATEST_TILE_COUNT),
        max_params_by_compute=apply(
            max_params_by_compute,
            training_time=TIME_BUDGET,
            cluster_flops_per_s=plan.gpus * sustained,
            flops_per_param_token=6.0,
            tokens_per_param=TOKENS_PER_PARAM,
        ),
        training_time=apply(
            training_time,
            "at the predicted rate",
            params=float(model.active_params),
            training_tokens=wanted,
            flops_per_param_token=6.0,
            cluster_flops_per_s=achieved_flops_per_s,
        ),
        greatest_tile_count=GREATEST_TILE_COUNT,
        time_budget=TIME_BUDGET,
        tokens_per_param=TOKENS_PER_PARAM,
        max_d_model_untiled=_width(derivation, workload, gpu, tokens, 1.0),
        capacity_tier=homes[-1],
    )


def _of_companions(workload: Workload) -> float:
    """States of the other models of the job by the article's count; parameters alone of what is frozen."""
    models = [companion.model for companion in workload.companions]
    trained = float(sum(model.trainable_params for model in models))
    frozen = float(sum(model.params for model in models)) - trained
    return STATE_BYTES_PER_PARAM * trained + PARAM_BYTES * frozen


def _width(derivation: Derivation, workload: Workload, gpu: Tier, tokens: float, tile_count: float) -> float:
    """The ceiling of width with so many tiles; an operator in one piece has no next tile in flight."""
    model = workload.model
    return derivation.apply(
        max_d_model_by_width,
        f"in {tile_count:.0f} tiles" if tile_count > 1 else "without tiles",
        available_bytes=gpu.capacity,
        tokens_per_rank=tokens,
        widest_params_per_squared_width=_widest_params(model) / model.d_model**2,
        param_bytes_per_param=PARAM_BYTES,
        tile_buffer_count=TILE_BUFFERS if tile_count > 1 else 1.0,
        tile_count=tile_count,
        operator_bytes_per_token_width=PARAM_BYTES * _widest_features(model) / model.d_model,
    )


def _widest_params(model: Model) -> float:
    """Parameters of the largest matrix of a layer."""
    return float(max(operator.largest_weight for operator in model.operators if operator.block))


def _widest_features(model: Model) -> float:
    """Values that go into and out of the widest operator of a layer, per token."""
    return float(max(operator.token_features for operator in model.operators if operator.block))
