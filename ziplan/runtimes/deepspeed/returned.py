"""Updated parameters on their way back to a GPU that keeps them."""

from __future__ import annotations

from ziplan.runtimes import terms
from ziplan.runtimes.deepspeed import laws
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.runtime import PYTHON, STAGED, Demand
from ziplan.runtimes.shared.threads import threads_per_rank

PAGE_BYTES = 4096.0
"""A page of memory on x86, where no larger ones are asked for (transparent_hugepage: madvise)."""

PAGE_FAULT_TIME = 1.0e-6
"""Seconds in which Linux hands out a page of zeros when it is first written to.

0.6 at the least and 1.0 us at the median of a desktop's
(https://ddumbying.vercel.app/experiments/pagefault-latency), 1.9 us of a first memset less a second one
(https://www.besthub.dev/articles/why-is-the-first-memset-so-slow-exploring-page-faults-tlb-and-huge-pages-2a9974a1da4b),
2.2 us in a virtual machine on an EPYC 7003, measured by PyTorch's cast of fp32 to a new tensor in bf16.
"""


def fresh_memory(f: Facts) -> tuple[Demand, ...]:
    """What the cast of updated parameters takes in stage 3: each sub-group's is a tensor of its own.

    `copy_` to a GPU that waits casts on the host first, as it does here; below stage 3 a buffer is kept.
    """
    threads = threads_per_rank(f)
    if not f.host or threads is None:
        return ()
    time = f.derivation.apply(
        laws.fresh_memory_time,
        "memory for updated parameters that are cast",
        fresh_bytes=f.stage3 * _returned(f, 1.0),
        page_bytes=PAGE_BYTES,
        page_fault_time=PAGE_FAULT_TIME,
        threads_per_rank=threads,
    )
    return (Demand(terms.UPDATED_PAGES, PYTHON, time),)


def copies_back(f: Facts, share: float) -> tuple[Demand, ...]:
    """A share of what goes back to the GPU of parameters that are updated off it: in stage 3 not pinned."""
    if not f.host:
        return ()
    returned, name = _returned(f, share), f"{f.host}.read"
    return (
        Demand(terms.UPDATED_COPY, name, (1 - f.stage3) * returned),
        Demand(terms.UPDATED_COPY, name + STAGED, f.stage3 * returned),
    )


def _returned(f: Facts, share: float) -> float:
    """Bytes of it."""
    return f.derivation.apply(
        laws.host_link_bytes,
        "updated parameters copied to the GPU",
        params=f.trained,
        bytes_per_param=f.element,
        dp_degree=f.plan.dp_degree,
        share=share * f.optimizer_share_off_gpu * f.params_on(f.gpu),
    )
