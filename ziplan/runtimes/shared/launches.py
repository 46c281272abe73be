"""What the host takes to launch the kernels of a micro-step, which the GPU cannot overtake."""

from __future__ import annotations

from ziplan.laws.counts import launch_time
from ziplan.laws.law import where
from ziplan.runtimes.runtime import PYTHON, Demand, total
from ziplan.runtimes.schedule import Parts, Works
from ziplan.runtimes.shared.facts import Facts

FORWARD_LATENCY, BACKWARD_LATENCY = 13.5e-6, 5.0e-6
"""Seconds of the host for one kernel, where Python calls module after module, and where autograd does.

The forward of a linear, with the module around it, takes 13.5 us of a Xeon 8480C
(https://github.com/NVIDIA/TransformerEngine/issues/2053); an operator that autograd records 6.8 us and one
that it does not, as in backward, 5.0 (https://github.com/pytorch/pytorch/issues/41383). Forward's may be as
little as 6.8, and backward's as much.
"""

ON_GRACE = 2.46
"""A Grace's time over a Xeon's: 33.2 us for the same linear (the same issue, GH200 and H100 DGX)."""

OUTSIDE = 30.0
"""Kernels of a micro-step outside of the layers, each way: embedding, positions, last norm, head and loss (a
Llama of transformers 5, counted)."""

LAUNCHES = "kernel launches"


def launches(f: Facts, share: float = 1.0) -> Demand:
    """The Python thread's way through the kernels of a micro-step, of a share of the layers."""
    return Demand(LAUNCHES, PYTHON, total(demand.amount for demand in launches_by_sweep(f, share)))


def launches_by_sweep(f: Facts, share: float = 1.0) -> tuple[Demand, Demand, Demand]:
    """The same of forward, of recomputation and of backward.

    Whatever takes the GPU long in backward cannot begin before forward is launched: a step that ends with
    a look at a number of the GPU's, as of a norm or a loss, leaves the thread no lead over it. A layer is
    recomputed where backward reaches it, so what is launched for that is backward's.
    """
    python, autograd = latencies(f)
    sweeps = ("forward", "recomputation", "backward")
    forward, again, backward = (
        Demand(
            LAUNCHES,
            PYTHON,
            f.derivation.apply(
                launch_time,
                f"kernels of one micro-step, {sweep}",
                kernel_count=count,
                launch_latency=latency,
            ),
        )
        for sweep, count, latency in zip(sweeps, launched(f, share), (python, python, autograd), strict=True)
    )
    return forward, again, backward


def launched(f: Facts, share: float = 1.0) -> tuple[float, float, float]:
    """Kernels of a micro-step that Python launches, in forward and in recomputation, and that autograd does.

    Those of layers, those outside of them, and in backward one for each gradient that is put away.
    """
    model, passes = f.workload.model, f.passes
    reached = f.by_reach(lambda swept: swept.layers)
    tensors = float(sum(count for _, count, _ in model.trainable_tensors))
    forward = share * model.layer_count * passes.forward_kernels
    backward = model.layer_count * passes.backward_kernels * reached + tensors
    outside = OUTSIDE * (passes.forward_kernels > 0)
    back = where(backward > tensors, share * backward + outside, 0.0)
    return forward + outside, forward * reached * f.full, back


def latencies(f: Facts) -> tuple[float, float]:
    """Seconds of the host for one kernel, of Python's and of autograd's, by its processor."""
    slower = ON_GRACE if "grace" in (f.cluster.node.cpu.name or "").lower() else 1.0
    return FORWARD_LATENCY * slower, BACKWARD_LATENCY * slower


def play(works: Works, parts: Parts, module: str, share: float) -> int:
    """The launches of a module in a schedule; the thread runs ahead of the GPU as far as it can."""
    seconds = parts.of(LAUNCHES, PYTHON, share)
    return works.add(module, LAUNCHES, PYTHON, seconds, line=PYTHON) if seconds else -1
