"""OpenMP threads that a launch line gives each rank: without it torchrun and accelerate leave one."""

from __future__ import annotations

from ziplan.hardware.processors import thread_count
from ziplan.runtimes.shared.facts import Facts


def threads_per_rank(f: Facts) -> float | None:
    """Threads of a rank that run at once; None where that takes cores, which nobody has stated."""
    cores = f.cluster.node.cpu.cores
    count = thread_count(f.workload.training.optimizer_threads, cores, float(f.ranks))
    if count is None or cores is None:
        return count
    return min(count, max(1.0, cores / f.ranks))


def threads_to_set(f: Facts) -> int | None:
    """OMP_NUM_THREADS: as stated, else cores divided among a node's ranks; None where cores are unknown."""
    stated = f.workload.training.optimizer_threads
    number = stated if isinstance(stated, int) else None
    count = thread_count(number, f.cluster.node.cpu.cores, float(f.ranks))
    return None if count is None else int(count)


def divided_by_the_shell(ranks: int) -> str:
    """The same where the machine that runs it has to say how many cores it has."""
    if ranks == 1:
        return "$(nproc)"
    return f"$(($(nproc) < {ranks} ? 1 : $(nproc) / {ranks}))"
