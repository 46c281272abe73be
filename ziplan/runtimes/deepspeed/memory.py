"""DeepSpeed's memory, line by line, as its source allocates it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.laws.memory import held_bytes
from ziplan.plan import Plan
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.gpu import gpu_ledger
from ziplan.runtimes.deepspeed.host import add_host
from ziplan.runtimes.deepspeed.shards import shards, tied_sizes
from ziplan.runtimes.deepspeed.traits import NEWEST, Traits
from ziplan.runtimes.runtime import RUNNING, Ledger
from ziplan.workload.training import Workload

if TYPE_CHECKING:
    from ziplan.runtimes.deepspeed.reading.settings import Settings


def ledger(
    derivation: Derivation,
    cluster: Cluster,
    workload: Workload,
    plan: Plan,
    stated: Settings | None = None,
    traits: Traits = NEWEST,
    overlap_comm: bool | None = None,
    zero: Mapping[str, float] | None = None,
) -> Ledger:
    """All lines of a plan. One instance of HBM is a GPU, of DRAM and NVMe a node.

    `stated` are the settings of a config that exists, `traits` those of the release.
    """
    facts = Facts(derivation, cluster, workload, plan, stated, traits, overlap_comm, zero)
    book = gpu_ledger(facts)
    if facts.host:
        add_host(book, facts, facts.host)
    if facts.nvme:
        _flash(book, facts)
    return book


def _flash(book: Ledger, f: Facts) -> None:
    assert f.nvme
    apply = f.derivation.apply
    params = apply(
        held_bytes,
        "parameter files",
        params=f.shards.swappable_params,
        state_bytes_per_param=f.element,
        share=f.swaps_params,
        ranks_per_instance=f.ranks,
    )
    book.add("parameter files", f.nvme, RUNNING, params, knob="offload_param.device")
    left = apply(
        held_bytes,
        "weights that were made, swapped out and then tied to others",
        params=shards(tied_sizes(f.workload.model), f.plan.dp_degree, f.element).swappable_params,
        state_bytes_per_param=f.element,
        # zero.Init swaps each tensor as its module is made, before transformers ties it.
        share=f.swaps_params * f.divided_at_once,
        ranks_per_instance=f.ranks,
    )
    book.add("files of tied weights", f.nvme, RUNNING, left, knob="the model's tied embeddings")
    states = apply(
        held_bytes,
        "master weights and moments",
        params=f.trained_shards.owned,
        state_bytes_per_param=f.states,
        share=f.swaps_optimizer,
        ranks_per_instance=f.ranks,
    )
    book.add("optimizer files", f.nvme, RUNNING, states, knob="offload_optimizer.device")
    gradients = apply(
        held_bytes,
        "fp32 gradient files",
        params=f.trained_shards.swappable_gradients,
        state_bytes_per_param=4.0,
        share=f.swaps_optimizer,
        ranks_per_instance=f.ranks,
    )
    book.add(
        "gradient files", f.nvme, ("backward", "step", "save"), gradients, knob="offload_optimizer.device"
    )
