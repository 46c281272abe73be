"""The points of a sweep on a Ray cluster: the one that is named, else one begun on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ziplan import __version__
from ziplan.errors import BadInput

if TYPE_CHECKING:
    from ziplan.study.sweep import Solved

Chunk = Sequence[tuple[str, ...]]
Solve = Callable[[Chunk], "list[Solved]"]

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Nothing is reported to anybody; the second keeps Ray's own notice of a changing default from stderr."""


def solved_on_ray(solve: Solve, chunks: Sequence[Chunk], workers: int | None) -> Iterator[Solved]:
    """Every chunk solved by some worker, in the order of the chunks; `workers` is for a cluster begun here.

    BadInput where Ray is missing, cannot be reached, or its workers are of another version.
    """
    ray = _begun(workers)
    try:
        work = ray.remote(max_retries=1)(_solve)
        pending = [work.remote(solve, chunk) for chunk in chunks]
        for each in pending:
            version, done = _got(ray, each)
            if version != __version__:
                raise BadInput.of(
                    f"a Ray worker has ziplan {version}, this is {__version__}",
                    help="install the same version on every node of the cluster",
                )
            yield from done
    finally:
        # Of a cluster that others use this only leaves; one that was begun here ends.
        ray.shutdown()


def _solve(solve: Solve, chunk: Chunk) -> tuple[str, list[Solved]]:
    return __version__, solve(chunk)


def _begun(workers: int | None) -> Any:
    """Ray, connected."""
    if find_spec("ray") is None:
        raise BadInput.of("--on ray needs ray, not installed here", help="pip install 'ziplan[ray]'")
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    import ray

    address = os.environ.get("RAY_ADDRESS", "local")
    here: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False} if address == "local" else {}
    try:
        with contextlib.redirect_stdout(None):
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **here)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise BadInput.of(
            f"Ray cannot be reached: {' '.join(str(error).split())[:200]}",
            help="RAY_ADDRESS names the cluster (auto: one that runs here); without it one is begun here",
        ) from error
    return ray


def _got(ray: Any, pending: Any) -> tuple[str, list[Solved]]:
    """What a worker answers; what went wrong there as it would have here."""
    try:
        answer: tuple[str, list[Solved]] = ray.get(pending)
    except ray.exceptions.RayTaskError as error:
        raise BadInput.of(
            f"a Ray worker could not solve its points: {' '.join(str(error.cause).split())[:200]}",
            help="install ziplan on every node; files that are named must be there too, under the same path",
        ) from error
    except ray.exceptions.RayError as error:
        raise BadInput.of(f"a Ray worker was lost: {' '.join(str(error).split())[:200]}") from error
    return answer
