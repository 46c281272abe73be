"""Configs of the engines beside the trained model's, one a companion, and what train.py does with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ziplan.errors import CannotEmit
from ziplan.hardware.cluster import Cluster
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing, Plan
from ziplan.runtimes.deepspeed.config import config
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.knobs import REENTRANT
from ziplan.runtimes.deepspeed.space import refusals, settle
from ziplan.runtimes.shared.companions import Engine, engines_of
from ziplan.runtimes.shared.train_py import trainable_lines
from ziplan.workload.training import Workload

OF_TRAINING = ("optimizer", "zero_allow_untested_optimizer", "gradient_clipping", "data_types")
"""Keys that say nothing to an engine without an optimizer."""

OF_GRADIENTS = ("contiguous_gradients", "reduce_scatter", "reduce_bucket_size", "sub_group_size")
"""The same of `zero_optimization`."""


def companion_configs(
    cluster: Cluster, workload: Workload, plan: Plan, nvme_path: str
) -> dict[str, dict[str, Any]]:
    """A DeepSpeed config for each companion, by the name of its file.

    Each has a folder of its own on the drives: an engine that swaps parameters empties the folder that it
    is given before it fills it (`swap_tensor/partitioned_param_swapper.py:_configure_aio`).
    """
    documents = {}
    for engine in engines_of(settle, cluster, workload, plan):
        name = engine.companion.name
        reasons = refusals(cluster, engine.workload, engine.plan)
        if reasons:
            raise CannotEmit(f"DeepSpeed cannot run the {name}: " + "; ".join(reasons))
        facts = Facts(Derivation(record=False), cluster, engine.workload, engine.plan)
        document = config(facts, f"{nvme_path.rstrip('/')}/{name}")
        documents[_file(engine)] = document if engine.companion.trained else _inferring(document)
    return documents


def _file(engine: Engine) -> str:
    return f"ds_config_{engine.companion.name}.json"


def _inferring(document: dict[str, Any]) -> dict[str, Any]:
    """The config of an engine without an optimizer."""
    kept = {key: value for key, value in document.items() if key not in OF_TRAINING}
    zero = document["zero_optimization"]
    kept["zero_optimization"] = {key: value for key, value in zero.items() if key not in OF_GRADIENTS}
    return kept


def companion_lines(cluster: Cluster, workload: Workload, plan: Plan) -> Iterator[str]:
    """What train.py has to do for each companion, after the trained model's engine is made."""
    yield "In train.py, an engine for each other model, in this order and after the trained one's. In stage 3"
    yield "a model is made under deepspeed.zero.Init with the config of its own engine."
    for engine in engines_of(settle, cluster, workload, plan):
        name = engine.companion.name.replace("-", "_")
        if engine.companion.trained:
            yield from trainable_lines(engine.workload.training, name)
            if engine.plan.activation_checkpointing == Checkpointing.FULL:
                kwargs = f'gradient_checkpointing_kwargs={{"use_reentrant": {REENTRANT}}}'
                yield f"{name}.gradient_checkpointing_enable({kwargs})"
            given = f"model={name}, model_parameters={name}.parameters(), config={_file(engine)!r}"
        else:
            yield f"{name}.eval().requires_grad_(False)"
            given = f"model={name}, config={_file(engine)!r}"
        yield f"{name}, *_ = deepspeed.initialize({given})"
    yield "A model that is not trained runs under torch.no_grad()."
