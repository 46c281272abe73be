"""Every point of a grid of inputs solved, on one or several processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import product
from math import isfinite
from multiprocessing import get_context
from typing import Any, NamedTuple

from ziplan.errors import BadInput
from ziplan.errors import Problem as Wrong
from ziplan.report.sweep import Axis, Row, Sweep, outcome_of
from ziplan.runtimes.runtime import Runtime
from ziplan.solve import Problem, best_plan
from ziplan.solve.binding import binding
from ziplan.study.pareto import front_of
from ziplan.units import counted

Pose = Callable[[Mapping[str, str]], Problem]
"""The problem under some changes, path to text; it is sent to other processes."""

CHUNK = 16
"""Points that a process is given at a time: about half a second of work."""

WORTH_A_PROCESS = 64
"""Points of which a process of its own is worth starting."""


MOST_PROBLEMS = 6
"""Problems that are told where every point is refused."""


class Solved(NamedTuple):
    """A row, and the problems of a point that was refused."""

    row: Row
    problems: tuple[Wrong, ...] = ()


def swept(
    pose: Pose,
    axes: Sequence[Axis],
    jobs: int | None = None,
    progress: Callable[[int, int], None] = lambda done, points: None,
    on_ray: bool = False,
) -> Sweep:
    """The grid's points in its order, whoever solves them: processes here, or a Ray cluster.

    An interrupt ends it early.

    BadInput where every point is refused: then it is the question that is wrong.
    """
    points = list(product(*(axis.values for axis in axes)))
    solved: list[Solved] = []
    try:
        for each in _solved(pose, axes, points, jobs, on_ray):
            solved.append(each)
            progress(len(solved), len(points))
    except KeyboardInterrupt:
        pass
    if len(solved) == len(points) and all(each.problems for each in solved):
        raise _refused([wrong for each in solved for wrong in each.problems])
    rows = tuple(each.row for each in solved)
    outcomes = [row.outcome for row in rows]
    timed = [each for each in outcomes if each is not None and isfinite(each.step_time)]
    priced = bool(timed) and all(each.dollars_per_token is not None for each in timed)
    return Sweep(
        axes=tuple(axes),
        rows=rows,
        front=front_of(outcomes, priced),
        asked=len(points),
        priced=priced,
    )


def _refused(problems: Sequence[Wrong]) -> BadInput:
    """Why no point of a grid can be solved: each reason once, of many the first few."""
    different = list(dict.fromkeys(problems))
    if len(different) <= MOST_PROBLEMS:
        return BadInput(*different)
    more = len(different) - MOST_PROBLEMS
    told = different[:MOST_PROBLEMS]
    said = f"and {counted(more, 'more problem')}: every point is refused"
    return BadInput(*told, Wrong("--vary", 0, 0, "ZP001", said))


def _jobs(points: int) -> int:
    """Processes by default: as many as there are cores, and work for."""
    # Not every system tells which of its cores this process may use.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, points // WORTH_A_PROCESS))


def _solved(
    pose: Pose, axes: Sequence[Axis], points: Sequence[tuple[str, ...]], asked: int | None, on_ray: bool
) -> Iterator[Solved]:
    paths = tuple(axis.path for axis in axes)
    if on_ray:
        from ziplan.study.sweep_ray import solved_on_ray

        yield from solved_on_ray(partial(solve_chunk, pose, paths), chunks(points), asked)
        return
    jobs = asked or _jobs(len(points))
    if jobs == 1:
        for point in points:
            yield solve_point(pose, paths, point)
        return
    # Fresh interpreters: a fork of a process with numpy's threads may hang.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        for done in _submitted(pool, pose, paths, points):
            yield from done.result()
    except BrokenProcessPool:
        raise BadInput.of("a process that solved points was killed", help="try fewer with --jobs 1") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submitted(
    pool: ProcessPoolExecutor, pose: Pose, paths: Sequence[str], points: Sequence[tuple[str, ...]]
) -> list[Future[list[Solved]]]:
    """The chunks given to processes, which are started here and leave an interrupt to this one."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return [pool.submit(solve_chunk, pose, paths, chunk) for chunk in chunks(points)]
    finally:
        signal.signal(signal.SIGINT, before)


def chunks(points: Sequence[tuple[str, ...]]) -> list[Sequence[tuple[str, ...]]]:
    """The points in pieces that are worth sending somewhere."""
    return [points[start : start + CHUNK] for start in range(0, len(points), CHUNK)]


def solve_chunk(pose: Pose, paths: Sequence[str], points: Sequence[tuple[str, ...]]) -> list[Solved]:
    """Several points, in a process of their own."""
    return [solve_point(pose, paths, point) for point in points]


def solve_point(pose: Pose, paths: Sequence[str], point: tuple[str, ...]) -> Solved:
    """One point: what its best plan comes to, or why its values cannot be together."""
    changes: dict[str, Any] = dict(zip(paths, point, strict=True))
    try:
        problem = pose(changes)
        best = best_plan(problem)
    except BadInput as error:
        reasons = tuple(dict.fromkeys(wrong.message for wrong in error.problems))
        return Solved(Row(point, None, reasons), error.problems)
    return Solved(Row(point, outcome_of(best, binding(best), named(problem.runtime))))


def named(runtime: Runtime) -> str:
    """A runtime and its version."""
    return f"{runtime.NAME} {runtime.VERSION}".rstrip()
