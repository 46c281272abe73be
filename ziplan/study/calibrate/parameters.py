"""What can be fitted: inputs of a prediction with a physical meaning, and the bounds that physics sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from ziplan.hardware.cluster import Calibrated
from ziplan.hardware.processors import CORE_BANDWIDTH, cpu_optimizer_rate, thread_count
from ziplan.hardware.rates import ADAM_BYTES, UNKNOWN, sustained_rate
from ziplan.laws.optimizer import cpu_adam_time_by_bandwidth
from ziplan.runtimes.runtime import swap_limit
from ziplan.study.calibrate.runs import FORWARD_BACKWARD, OPTIMIZER, OPTIMIZER_READ, WHOLE, Subject
from ziplan.units import Precision

MATRIX, UPDATE, CORE, SWAP, OVERLAP = (
    "matrix rate",
    "CPU optimizer",
    "reads of one core",
    "swap limit",
    "overlap",
)


class Parameter(NamedTuple):
    """One input. `phases` are those that may identify it, the one that shows it best first."""

    name: str
    unit: str
    phases: tuple[str, ...]
    path: Callable[[Subject], str]
    """Where it stands in a machine, as `--set` names it; empty where it is no machine's."""
    value: Callable[[Subject], float]
    """What is taken now; NaN where nobody knows one."""
    put: Callable[[Subject, float], Subject]
    most: Callable[[Subject], tuple[float, str]]
    """The most that it can be, and what sets that bound (infinity, where nothing known does)."""
    slips: str
    """What is most likely wrong where a run asks for more."""
    applies: Callable[[Subject], bool] = lambda _: True
    """Whether a run may depend on it at all; of one that does not, nothing is said."""


def _node(subject: Subject, **changes: object) -> Subject:
    node = subject.cluster.node.model_copy(update=changes)
    return replace(subject, cluster=replace(subject.cluster, node=node))


def _sustained(subject: Subject) -> float:
    rate = sustained_rate(subject.cluster.node, subject.workload.precision)
    return math.nan if rate.value == UNKNOWN else rate.value


def _with_sustained(subject: Subject, value: float) -> Subject:
    gpu = subject.cluster.node.gpu
    rates: Mapping[Precision, float] = {**gpu.sustained_flops_per_s, subject.workload.precision: value}
    return _node(subject, gpu=gpu.model_copy(update={"sustained_flops_per_s": rates}))


def _peak(subject: Subject) -> tuple[float, str]:
    gpu, precision = subject.cluster.node.gpu, subject.workload.precision
    peak = gpu.peak_flops_per_s.get(precision, math.inf)
    return peak, f"the {precision} peak rate of {gpu.name}"


def _with_update(subject: Subject, value: float) -> Subject:
    cpu = subject.cluster.node.cpu
    return _node(subject, cpu=cpu.model_copy(update={"adam_params_per_s": value}))


def _dram(subject: Subject) -> tuple[float, str]:
    """Parameters per second that the DRAM's theoretical bandwidth carries."""
    node = subject.cluster.node
    host = node.tier_of("dram")
    bandwidth = node.tiers[host].read_bandwidth if host else None
    if bandwidth is None:
        return math.inf, ""
    one = cpu_adam_time_by_bandwidth(
        params=1.0, optimizer_bytes_per_param=ADAM_BYTES, dram_bandwidth=bandwidth
    )
    return 1.0 / one, f"what DRAM of {node.name} carries at {ADAM_BYTES:.0f} bytes per parameter"


def few_threads(subject: Subject) -> bool:
    """Whether a run said that its ranks have fewer threads than the node has cores for them."""
    cpu, threads = subject.cluster.node.cpu, subject.workload.training.optimizer_threads
    ranks = _ranks(subject)
    each = thread_count(threads, cpu.cores, ranks)
    return threads is not None and each is not None and (cpu.cores is None or ranks * each < cpu.cores)


def _ranks(subject: Subject) -> float:
    """Ranks of a node."""
    plan = subject.plan
    everyone = float(plan.gpus)
    return min(float(subject.cluster.node.gpus_per_node), everyone)


def _core(subject: Subject) -> float:
    stated = subject.cluster.node.cpu.core_bandwidth
    return CORE_BANDWIDTH[0] if stated is None else stated


def _with_core(subject: Subject, value: float) -> Subject:
    return _node(subject, cpu=subject.cluster.node.cpu.model_copy(update={"core_bandwidth": value}))


def _swap(subject: Subject) -> float:
    limit = swap_limit(subject.cluster, subject.runtime)
    return math.nan if limit is None else limit


OVERLAPS = ("overlap", "overlap_between_nodes")
"""Keys of a calibration file for the overlap in runs on one node, and on several."""


def _overlap_key(subject: Subject) -> str:
    return OVERLAPS[_nodes(subject) > 1]


def _nodes(subject: Subject) -> int:
    return subject.cluster.nodes_of(float(subject.plan.gpus))


def _overlap(subject: Subject) -> float:
    """Share of what runs beside the GPU's work that is taken to be hidden."""
    calibrated = subject.cluster.calibrated
    hidden = calibrated.hidden(subject.runtime.NAME, _nodes(subject)) if calibrated is not None else None
    return 1.0 if hidden is None else hidden


def _with_overlap(subject: Subject, value: float) -> Subject:
    here, between = (None, value) if _nodes(subject) > 1 else (value, None)
    calibrated = Calibrated("", subject.runtime.NAME, here, overlap_between_nodes=between)
    return replace(subject, cluster=replace(subject.cluster, calibrated=calibrated))


PARAMETERS = (
    Parameter(
        name=MATRIX,
        unit="FLOP/s",
        phases=(FORWARD_BACKWARD, WHOLE),
        path=lambda subject: f"gpu.sustained_flops_per_s.{subject.workload.precision}",
        value=_sustained,
        put=_with_sustained,
        most=_peak,
        slips=(
            "the run had fewer tokens in a step (sequence length, micro-batch, accumulation), less "
            "recomputed, a smaller model or a narrower number format than what is asked about"
        ),
    ),
    Parameter(
        name=UPDATE,
        unit="param/s",
        phases=(OPTIMIZER, WHOLE),
        path=lambda _: "cpu.adam_params_per_s",
        value=lambda subject: cpu_optimizer_rate(subject.cluster.node).value,
        put=_with_update,
        most=_dram,
        slips=(
            "fewer parameters were trained, part of the optimizer ran on the GPU, or its state has fewer "
            "bytes than what is asked about"
        ),
    ),
    Parameter(
        name=CORE,
        unit="B/s",
        phases=(OPTIMIZER, WHOLE),
        path=lambda _: "cpu.core_bandwidth",
        value=_core,
        put=_with_core,
        most=lambda _: (math.inf, ""),
        slips="ranks had more threads, fewer parameters were trained, or a part of them on the GPU",
        applies=few_threads,
    ),
    Parameter(
        name=SWAP,
        unit="B/s",
        phases=(OPTIMIZER_READ, OPTIMIZER, WHOLE),
        path=lambda _: "swap_limit",
        value=_swap,
        put=lambda subject, value: _node(subject, swap_limit=value),
        most=lambda _: (math.inf, ""),
        slips=(
            "the drives are faster than stated, there are more of them, or the files were in the page cache "
            "(a swap folder in memory, aio without direct I/O)"
        ),
    ),
    Parameter(
        name=OVERLAP,
        unit="1",
        phases=(FORWARD_BACKWARD,),
        path=_overlap_key,
        value=_overlap,
        put=_with_overlap,
        most=lambda _: (1.0, "everything hidden"),
        slips="",
    ),
)
"""In the order of fitting: what a later one shows depends on those before it."""
