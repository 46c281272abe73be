"""Host memory that the system hands out anew for every large tensor that an operator makes."""

from __future__ import annotations

from ziplan.laws.host import fresh_memory_time
from ziplan.runtimes.runtime import PYTHON, Demand
from ziplan.runtimes.shared.facts import Facts
from ziplan.runtimes.shared.threads import threads_per_rank

PAGE_BYTES = 4096.0
"""A page of memory on x86, where no larger ones are asked for (transparent_hugepage: madvise)."""

PAGE_FAULT_TIME = 1.0e-6
"""Seconds in which Linux hands out a page of zeros when it is first written to.

0.6 at the least and 1.0 us at the median of a desktop's
(https://ddumbying.vercel.app/experiments/pagefault-latency), 1.9 us of a first memset less a second one
(https://www.besthub.dev/articles/why-is-the-first-memset-so-slow-exploring-page-faults-tlb-and-huge-pages-2a9974a1da4b),
2.1 us in a virtual machine on an EPYC 7003, measured by a first write to each page.
"""

PAGE_FREE_TIME = 0.15e-6
"""Seconds in which munmap takes a page back: 0.33 us where handing it out took 2.1 (the same machine)."""

HUGE_PAGE_BYTES = 2.0 * 2**20
"""What Linux hands out at a time where transparent_hugepage is always."""

HUGE_PAGE_FAULT_TIME = 167.0e-6
"""Seconds of such a page: what zeroing it takes a core (0.33 us for each 4,096 B on the same machine)."""

HUGE_PAGE_FREE_TIME = 6.0e-6
"""The same of taking it back (0.012 us for each 4,096 B)."""

UNMAPPED_FROM = 32.0 * 2**20
"""Bytes from which on glibc's malloc hands a freed block back to the system in any case.

DEFAULT_MMAP_THRESHOLD_MAX of a 64-bit system, to which the threshold rises by itself (mallopt(3)).
"""


def fresh_memory(
    f: Facts, term: str, label: str, fresh_bytes: float, threads: float | None = None
) -> tuple[Demand, ...]:
    """What so many bytes of one rank take, in blocks that are handed back each time.

    `threads` write to them first: those that the rank computes with, unless it is said.
    """
    threads = threads_per_rank(f) if threads is None else threads
    if not f.host or threads is None:
        return ()
    huge = f.cluster.node.cpu.huge_pages
    time = f.derivation.apply(
        fresh_memory_time,
        label,
        fresh_bytes=fresh_bytes,
        page_bytes=HUGE_PAGE_BYTES if huge else PAGE_BYTES,
        page_fault_time=HUGE_PAGE_FAULT_TIME if huge else PAGE_FAULT_TIME,
        page_free_time=HUGE_PAGE_FREE_TIME if huge else PAGE_FREE_TIME,
        threads_per_rank=threads,
    )
    return (Demand(term, PYTHON, time),)
