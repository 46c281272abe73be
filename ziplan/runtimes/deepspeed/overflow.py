"""The search for what is infinite or no number among 16-bit gradients on the host, in stage 3.

`stage3.py:has_overflow` looks where the buffer of gradients is. Below stage 3 they are looked at on the GPU
(`update_overflow_tracker_for_param_grad`), and in bf16 not at all.
"""

from __future__ import annotations

import numpy as np

from ziplan.hardware.rates import ADAM_BYTES
from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.runtime import PYTHON, Demand
from ziplan.runtimes.shared.fresh import fresh_memory
from ziplan.runtimes.shared.threads import threads_per_rank
from ziplan.runtimes.terms import OVERFLOW

CHECKED_BYTES = 12.0
"""Bytes that `torch.isinf`, `torch.isnan` and `any` of both move for a gradient of 16 bits.

Magnitudes are read and written (4), compared (3) and gone through (1); gradients are compared with themselves
(3), and that is gone through (1).
"""

MADE_BYTES = 4.0
"""Bytes of them in new tensors: magnitudes in 16 bits, and two masks."""

CHECK_RATE = 0.48e9
"""Gradients per second of a thread, beyond what the bytes of the same operators take.

`isinf`, `isnan` and `any` took one core of an EPYC 7003 2.9 ns with tensors at hand to write to (torch 2.13;
two, 1.5), of which the 12 bytes that they move are 0.8.
"""


def overflow_check(f: Facts) -> tuple[Demand, ...]:
    """The bytes of it, what a thread computes beyond them, and the memory that it is handed out."""
    fp16 = float(f.workload.precision == "fp16")
    looked_through = fp16 * f.traits.checks_on_host * f.stage3 * f.optimizer_off_gpu
    if not f.host or not np.any(looked_through):
        return ()
    gradients = f.derivation.apply(
        laws.checked_gradients,
        "16-bit gradients on the host that are looked through",
        params=f.trained,
        dp_degree=f.plan.dp_degree,
        share=looked_through,
    )
    moved = Demand(OVERFLOW, "cpu_optimizer", CHECKED_BYTES / ADAM_BYTES * gradients * f.ranks)
    threads = threads_per_rank(f)
    if threads is None:
        return (moved,)
    time = f.derivation.apply(
        laws.check_time,
        "operators that look for what is infinite or no number",
        gradients=gradients,
        check_rate=CHECK_RATE,
        threads_per_rank=threads,
    )
    made = fresh_memory(f, OVERFLOW, "memory of magnitudes and masks", MADE_BYTES * gradients)
    return (moved, Demand(OVERFLOW, PYTHON, time), *made)
