"""What Python's hooks around every module take in stage 3."""

from __future__ import annotations

from ziplan.laws.law import where
from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.leaves import forward_visits
from ziplan.runtimes.deepspeed.tiled import by_tiles
from ziplan.runtimes.runtime import PYTHON, Demand
from ziplan.workload.model import Model

HOOK_LATENCY = 0.670e-3
"""Seconds of Python for each visit of a module in stage 3: hooks, fetch, prefetch, release.

From Qwen's README (https://github.com/QwenLM/Qwen, 7B in full on 2 A100, 256 tokens): 0.5 s a micro-step
that 512 tokens do not lengthen, 0.046 s of it for launching its kernels, over 678 visits: of 7 modules with
parameters in each of 32 layers (two norms, c_attn, c_proj, w1, w2 and c_proj of modeling_qwen.py), forward,
recomputed and backward, and of 3 outside.
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


def hooks(f: Facts) -> Demand:
    """The Python thread's way through the modules, which the GPU cannot overtake."""
    seconds = f.derivation.apply(
        laws.hook_time,
        "Python hooks of one micro-step",
        module_visits=f.stage3 * module_visits(f),
        hook_latency=HOOK_LATENCY,
    )
    return Demand(HOOKS, PYTHON, seconds + f.stage3 * _views(f))


def module_visits(f: Facts) -> float:
    """Visits of modules that have parameters in one micro-step; a leaf is one module, and so is a tile."""
    model, leaves = f.workload.model, f.knobs.leaves
    inside = by_tiles(model, f.plan.tile_count, lambda each: float(forward_visits(each, leaves)[0]))
    outside = float(forward_visits(model, leaves)[1])
    reached = f.by_reach(lambda swept: swept.layers)
    # Forward; backward, of layers where there is something to train; recomputation of layers.
    again = reached * inside * (1.0 + f.full) + where(reached > 0, outside, 0.0)
    return inside + outside + again


def _views(f: Facts) -> float:
    """Seconds of views of every rank's part of tensors: in stage 3 one rank after the other, in Python."""
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
    return gathered + reduced


def _trained_tensors(model: Model) -> float:
    return float(sum(count for _, count, _ in model.trainable_tensors))
