"""What Python's hooks around every module take in stage 3."""

from __future__ import annotations

from ziplan.laws.law import maximum, minimum, where
from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.leaves import forward_visits
from ziplan.runtimes.deepspeed.tiled import by_tiles
from ziplan.runtimes.runtime import PYTHON, Demand
from ziplan.workload.model import Model

HOOK_LATENCY = 0.657e-3
"""Seconds of Python for each visit of a module in stage 3: hooks, fetch, prefetch, release.

From Qwen's README (https://github.com/QwenLM/Qwen, 7B in full on 2 A100, 256 tokens): 0.5 s a micro-step
that 512 tokens do not lengthen, 0.046 s of it for launching its kernels and 0.0085 for the last bucket of
gradients, over 678 visits: of 7 modules with parameters in each of 32 layers (two norms, c_attn, c_proj, w1,
w2 and c_proj of modeling_qwen.py), forward, recomputed and backward, and of 3 outside.
"""

VIEW_LATENCY = 2e-6
"""Seconds of Python to make a view of a tensor, of which every rank's part of a tensor takes some.

PyTorch 2.13 on an EPYC and a Xeon took 1.2 to 3 us for a slice or a `narrow` of a tensor.
"""

GATHERED_VIEWS, REDUCED_VIEWS = 2.0, 2.0
"""Views of a rank's part: of a tensor that is copied out of a gather, `narrow` and `record_stream`
(`AllGatherCoalescedHandle.wait`); of a gradient, a slice and its place in the list that is concatenated
(`coalesced_collectives.py:reduce_scatter_coalesced`)."""

HOOKS = "Python hooks"


def hooks_by_sweep(f: Facts) -> tuple[Demand, Demand]:
    """The Python thread's way through the modules, forward and after it, which the GPU cannot overtake."""
    gathered, reduced = _views(f)
    ahead = in_forward(f)
    parts = (ahead * gathered, (1 - ahead) * gathered + reduced)
    forward, after = (
        f.derivation.apply(
            laws.hook_time,
            f"Python hooks of one micro-step, {sweep}",
            module_visits=f.stage3 * visits,
            hook_latency=HOOK_LATENCY,
        )
        + f.stage3 * views
        for sweep, visits, views in zip(("forward", "after it"), module_visits(f), parts, strict=True)
    )
    return Demand(HOOKS, PYTHON, forward), Demand(HOOKS, PYTHON, after)


def module_visits(f: Facts) -> tuple[float, float]:
    """Visits of modules that have parameters in a micro-step's forward, and after it.

    A leaf is one module, and so is a tile.
    """
    model, leaves = f.workload.model, f.knobs.leaves
    inside = by_tiles(model, f.plan.tile_count, lambda each: float(forward_visits(each, leaves)[0]))
    outside = float(forward_visits(model, leaves)[1])
    reached = f.by_reach(lambda swept: swept.layers)
    # Backward, of layers where there is something to train; recomputation of layers.
    again = reached * inside * (1.0 + f.full) + where(reached > 0, outside, 0.0)
    return inside + outside, again


def in_forward(f: Facts) -> float:
    """Share of what a micro-step gathers that forward does: all that does not stay gathered, once."""

    def let_go(model: Model) -> float:
        return float(sum(n * count for n, count, _ in model.tensors if n > f.knobs.persistence))

    once = by_tiles(f.workload.model, f.plan.tile_count, let_go)
    fetched = f.played(lambda fetches, _: fetches.elements)
    return minimum(1.0, once / maximum(fetched, 1.0))


def _views(f: Facts) -> tuple[float, float]:
    """Seconds of views of every rank's part of tensors: in stage 3 one rank after the other, in Python.

    Of tensors that are gathered, and of gradients.
    """
    apply, model = f.derivation.apply, f.workload.model
    joined = f.played(lambda fetched, _: fetched.joined_tensors)
    trained = by_tiles(model, f.plan.tile_count, _trained_tensors)
    gathered, reduced = (
        apply(
            laws.view_time,
            label,
            tensor_count=tensors,
            dp_degree=f.plan.dp_degree,
            views_per_rank=views,
            view_latency=VIEW_LATENCY,
        )
        for label, tensors, views in (
            ("views of gathered tensors, one for each rank", joined, GATHERED_VIEWS),
            ("views of gradients, one for each rank", trained, REDUCED_VIEWS),
        )
    )
    return gathered, reduced


def _trained_tensors(model: Model) -> float:
    return float(sum(count for _, count, _ in model.trainable_tensors))
