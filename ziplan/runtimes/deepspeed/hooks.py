"""What Python's hooks around every module take in stage 3."""

from __future__ import annotations

from ziplan.laws.law import where
from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.tiled import by_tiles
from ziplan.runtimes.runtime import PYTHON, Demand
from ziplan.workload.model import Model

HOOK_LATENCY = 0.525e-3
"""Seconds of Python for each visit of a module in stage 3: hooks, fetch, prefetch, release.

From Qwen's README (https://github.com/QwenLM/Qwen, 7B in full on 2 A100, 256 tokens): 0.5 s a micro-step
that 512 tokens do not lengthen, 0.037 s of it for launching its kernels, over 870 visits. DeepSpeed's own
post on its core API has 0.67 ms on H100s.
"""

HOOKS = "Python hooks"


def hooks(f: Facts) -> Demand:
    """The Python thread's way through the modules, which the GPU cannot overtake."""
    model = f.workload.model
    inside = by_tiles(model, f.plan.tile_count, lambda each: float(_visits(each)[0]))
    outside = float(_visits(model)[1])
    reached = f.by_reach(lambda swept: swept.layers)
    # Forward; backward, of layers where there is something to train; recomputation of layers.
    again = reached * inside * (1.0 + f.full) + where(reached > 0, outside, 0.0)
    seconds = f.derivation.apply(
        laws.hook_time,
        "Python hooks of one micro-step",
        module_visits=f.stage3 * (inside + outside + again),
        hook_latency=HOOK_LATENCY,
    )
    return Demand(HOOKS, PYTHON, seconds)


def _visits(model: Model) -> tuple[int, int]:
    """Visits of modules in forward, in layers and outside of them."""
    counts = [0, 0]
    for section in model.sections:
        counts[not section.block] += section.repeat * sum(len(layer) for layer in section.layers)
    return counts[0], counts[1]
