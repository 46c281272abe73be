"""From the words on the command line to a problem to solve."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ziplan.cli.output import warn
from ziplan.errors import BadInput
from ziplan.errors import Problem as Wrong

if TYPE_CHECKING:
    from ziplan.hardware.cluster import Cluster
    from ziplan.runtimes.runtime import Runtime
    from ziplan.solve.problem import Answer, Problem

T = TypeVar("T")


class Request(NamedTuple):
    """What every planning command is asked: names, and settings that override what files say."""

    model: str
    cluster: str
    runtime: str = "deepspeed"
    settings: tuple[str, ...] = ()
    training: Mapping[str, Any] = MappingProxyType({})
    companions: tuple[str, ...] = ()
    objective: str = "time"
    allow_tiling: bool = False
    calibration: str = ""


def problem_of(request: Request) -> Problem:
    """The problem that a request poses; BadInput with everything wrong about names, files and settings."""
    from ziplan.hardware.profiles import load_cluster
    from ziplan.solve.problem import Problem
    from ziplan.workload.load import load_workload

    wrong: list[Wrong] = []
    runtime = _attempt(wrong, lambda: runtime_named(request.runtime))
    settings = _attempt(wrong, lambda: [_setting(text) for text in request.settings])
    cluster = _attempt(wrong, lambda: _calibrated(load_cluster(request.cluster, settings or []), request))
    precisions = tuple(cluster.node.gpu.peak_flops_per_s) if cluster else ()
    workload = _attempt(
        wrong, lambda: load_workload(request.model, request.training, precisions, request.companions)
    )
    if runtime is None or cluster is None or workload is None or wrong:
        raise BadInput(*wrong)
    return Problem(
        cluster=cluster,
        workload=workload,
        runtime=runtime,
        objective=request.objective,  # type: ignore[arg-type]
        allow_tiling=request.allow_tiling,
    )


def _calibrated(cluster: Cluster, request: Request) -> Cluster:
    """The cluster with what the request's calibration says of it."""
    if not request.calibration:
        return cluster
    from ziplan.hardware.calibration import calibrated, load_calibration

    return calibrated(cluster, load_calibration(request.calibration), request.runtime)


def _attempt(wrong: list[Wrong], load: Callable[[], T]) -> T | None:
    """What `load` gives, or None with its problems noted."""
    try:
        return load()
    except BadInput as error:
        wrong += error.problems
        return None


def answer_to(request: Request, with_alternatives: bool = True) -> Answer:
    """The solver's answer to a request; what looks odd about the machine is said on stderr."""
    from ziplan.solve import ALTERNATIVES, solve

    problem = problem_of(request)
    for warning in problem.cluster.warnings:
        warn(warning)
    return solve(problem, ALTERNATIVES if with_alternatives else 0)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise BadInput.of(
            f"--set {text!r} is not KEY=VALUE", help="for example --set tiers.dram.capacity='2 TiB'"
        )
    return key.strip(), value.strip()


def runtime_named(name: str) -> Runtime:
    """The runtime called `name`."""
    from ziplan.runtimes import RUNTIMES

    if name not in RUNTIMES:
        raise BadInput.of(f"unknown runtime {name!r}", help=f"known are {', '.join(RUNTIMES)}")
    return RUNTIMES[name]


def runtime_names() -> Iterable[str]:
    """Names that --runtime takes."""
    from ziplan.runtimes import RUNTIMES

    return RUNTIMES


def model_names() -> Iterable[str]:
    """Shipped model shapes."""
    from ziplan.workload.shapes import list_shapes

    return list_shapes()


def machine_names() -> Iterable[str]:
    """Shipped machines."""
    from ziplan.hardware.shipped import list_profiles

    return list_profiles("nodes")
