"""What the host takes to launch the kernels of a micro-step, which the GPU cannot overtake."""

from __future__ import annotations

from ziplan.laws.counts import launch_time
from ziplan.laws.law import where
from ziplan.runtimes.runtime import PYTHON, Demand
from ziplan.runtimes.schedule import Parts, Works
from ziplan.runtimes.shared.facts import Facts

LAUNCH_LATENCY = 6.8e-6
"""Seconds of the host for one kernel: 5.0e-6 to 13.5e-6.

An operator that autograd records takes 6.8 us of PyTorch, one that it does not, as all of backward, 5.0
(https://github.com/pytorch/pytorch/issues/41383). A linear's forward, with the module around it, takes
13.5 us of a Xeon 8480C (https://github.com/NVIDIA/TransformerEngine/issues/2053).
"""

ON_GRACE = 2.46
"""A Grace's time over a Xeon's: 33.2 us for the same linear (the same issue, GH200 and H100 DGX)."""

OUTSIDE = 60.0
"""Kernels of a micro-step outside of the layers: embedding, positions, last norm, head and loss, forward and
backward (a Llama of transformers 5, counted)."""

LAUNCHES = "kernel launches"


def launches(f: Facts, share: float = 1.0) -> Demand:
    """The Python thread's way through the kernels of a micro-step, of a share of the layers."""
    return Demand(
        LAUNCHES,
        PYTHON,
        f.derivation.apply(
            launch_time,
            "kernels of one micro-step",
            kernel_count=launched(f, share),
            launch_latency=latency(f),
        ),
    )


def launched(f: Facts, share: float = 1.0) -> float:
    """Kernels of a micro-step: of layers in each sweep, outside of them, one for each gradient tensor."""
    model, passes = f.workload.model, f.passes
    reached = f.by_reach(lambda swept: swept.layers)
    swept = passes.forward_kernels * (1.0 + reached * f.full) + passes.backward_kernels * reached
    tensors = float(sum(count for _, count, _ in model.trainable_tensors))
    return where(swept > 0, share * (model.layer_count * swept + tensors) + OUTSIDE, 0.0)


def latency(f: Facts) -> float:
    """Seconds of the host for one kernel, by its processor."""
    name = f.cluster.node.cpu.name or ""
    return LAUNCH_LATENCY * (ON_GRACE if "grace" in name.lower() else 1.0)


def play(works: Works, parts: Parts, module: str, share: float) -> int:
    """The launches of a module in a schedule; the thread runs ahead of the GPU as far as it can."""
    seconds = parts.of(LAUNCHES, PYTHON, share)
    return works.add(module, LAUNCHES, PYTHON, seconds, line=PYTHON) if seconds else -1
