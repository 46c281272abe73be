"""How gradients leave the GPU for the host: to pinned memory or not, cast where, waited for or not."""

from __future__ import annotations

import numpy as np

from ziplan.hardware.rates import ADAM_BYTES
from ziplan.laws.law import maximum, where
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.host_link import of_the_optimizer
from ziplan.runtimes.runtime import STAGED, Demand
from ziplan.runtimes.shared.facts import READ_AND_WRITTEN
from ziplan.runtimes.shared.fresh import fresh_memory
from ziplan.runtimes.terms import GRADIENT_PAGES, TO_THE_OPTIMIZER


def unpinned(f: Facts) -> float:
    """1 where gradients on the host are not in pinned memory, so that their copies are waited for.

    `offload_optimizer.pin_memory` of a config or of a run; what is emitted has it. It is heeded where the
    optimizer is on NVMe too (`stage3.py:_configure_offloading`). Below stage 3 releases without the choice
    pin.
    """
    if f.pins_gradients:
        return 0.0
    return maximum(f.stage3, f.traits.chooses_to_pin) * f.optimizer_off_gpu


def pins(f: Facts) -> bool:
    """Whether the optimizer's memory on the host is pinned, as that of every plan of a grid is."""
    return not np.any(unpinned(f))


def holds(f: Facts) -> float:
    """1 where the Python thread waits for copies of the last gradients, and with it the GPU.

    A copy to pinned memory too, in releases that do not say `non_blocking` (`stage3.py:partition_grads`).
    """
    if not f.traits.waits_for_gradients:
        return unpinned(f)
    return maximum(f.stage3 * _on_host(f), unpinned(f))


def _on_host(f: Facts) -> float:
    return where(f.optimizer_on(f.host) > 0, 1.0, 0.0)


def to_host(f: Facts, direction: str) -> str:
    """The resource between the GPU and gradients on the host."""
    return f"{f.host}.{direction}" + ("" if pins(f) else STAGED)


def way_to_the_optimizer(f: Facts) -> str:
    """The resource of the last gradients: what swaps goes through pinned memory, as all of some releases."""
    if pins(f) or not np.any(_on_host(f) * (1 - f.stage3 * f.traits.stages_gradients)):
        return f"{f.host}.write"
    return to_host(f, "write")


def beside_the_copies(f: Facts) -> tuple[Demand, ...]:
    """What stage 3's last gradients take on the host, in releases that cast or copy them there."""
    if not np.any(f.casts_gradients) and not f.traits.stages_gradients:
        return ()
    label = "gradient shards copied to the host once per step, which casts them"
    narrow = f.casts_gradients * of_the_optimizer(f, label, f.accumulated)
    large = f.trained_shards.unmapped / maximum(f.trained_shards.owned, 1.0)
    # The driver's thread writes to each of these tensors first.
    pages = fresh_memory(f, GRADIENT_PAGES, "memory for gradients that are cast", narrow * large, threads=1.0)
    staged = f.stage3 * f.traits.stages_gradients * _on_host(f)
    passed = f.casts_gradients * (f.accumulated + f.master) + staged * READ_AND_WRITTEN * f.master
    shard = f.optimizer_share_off_gpu * f.trained / f.plan.dp_degree
    return (
        *pages,
        Demand(TO_THE_OPTIMIZER, f"{f.host}.write{STAGED}", narrow),
        Demand(TO_THE_OPTIMIZER, "cpu_optimizer", passed / ADAM_BYTES * shard * f.ranks),
    )
