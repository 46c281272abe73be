"""A calibration file (`ziplan.calibration/1`): values that a user's own runs gave, laid over a machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

from pydantic import Field, model_validator

from ziplan.errors import BadInput
from ziplan.files import Document, nearest, read, validate
from ziplan.hardware.checks import contradictions
from ziplan.hardware.cluster import Calibrated, Cluster, Provenance
from ziplan.hardware.node import Node
from ziplan.hardware.parts import Part
from ziplan.units import Precision, UnitError, parse

SCHEMA = "ziplan.calibration/1"

FARTHEST = 100.0
"""A step that took this many times as long as predicted, or as short, is of another run or another unit."""


class Value(Part):
    """A fitted value with its unit, what was taken before, the least and most that runs show."""

    value: str
    before: str = ""
    low: str = ""
    high: str = ""
    runs: tuple[str, ...] = Field(min_length=1)


class Overlap(Part):
    """Share of what the runtime does beside the GPU's work that is hidden behind it."""

    value: float = Field(ge=0, le=1)
    low: float = Field(ge=0, le=1)
    high: float = Field(ge=0, le=1)
    runs: tuple[str, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _in_order(self) -> Overlap:
        if not self.low <= self.value <= self.high:
            raise ValueError("its value is not between low and high")
        return self


class PhaseSeconds(Part):
    """Seconds per step of a phase: measured, and predicted before and after the fit."""

    measured_s: float = Field(ge=0)
    before_s: float = Field(ge=0)
    after_s: float = Field(ge=0)


class PeakBytes(Part):
    """The most of a tier that was seen in use, and what is predicted, at least and at most."""

    measured_bytes: float = Field(ge=0)
    predicted_low_bytes: float = Field(ge=0)
    predicted_high_bytes: float = Field(ge=0)


class RunEntry(Part):
    """One run. `from_others_s` is its step as predicted with values from the other runs alone."""

    kind: str
    steps: int = Field(default=0, ge=0)
    phases: dict[str, PhaseSeconds]
    from_others_s: float | None = Field(default=None, gt=0)
    peaks: dict[str, PeakBytes] = Field(default_factory=dict)
    remarks: tuple[str, ...] = ()


class ResidualEntry(Part):
    """Measured over predicted step time of a kind of run, each predicted from the others if there are any."""

    runs: int = Field(ge=1)
    low: float = Field(ge=1 / FARTHEST, le=FARTHEST)
    high: float = Field(ge=1 / FARTHEST, le=FARTHEST)

    @model_validator(mode="after")
    def _in_order(self) -> ResidualEntry:
        if self.low > self.high:
            raise ValueError("low is more than high")
        return self


class CalibrationFile(Part):
    """A calibration, of the machine and the GPU named. `values` has inputs of a machine by their paths."""

    schema_: Literal["ziplan.calibration/1"] = Field(alias="schema")
    machine: str
    gpu: str
    runtime: str
    values: dict[str, Value] = Field(default_factory=dict)
    overlap: Overlap | None = None
    """In runs on one node."""
    overlap_between_nodes: Overlap | None = None
    """In runs on several."""
    not_identified: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    runs: dict[str, RunEntry] = Field(default_factory=dict)
    residuals: dict[str, ResidualEntry] = Field(default_factory=dict)


class _Input(NamedTuple):
    """An input that a calibration may set: its unit, whether it is the GPU's, and how it is set."""

    unit: str
    of_gpu: bool
    put: Callable[[Node, float], Node]


def _with_sustained(precision: Precision) -> Callable[[Node, float], Node]:
    def put(node: Node, value: float) -> Node:
        rates = {**node.gpu.sustained_flops_per_s, precision: value}
        return node.model_copy(update={"gpu": node.gpu.model_copy(update={"sustained_flops_per_s": rates})})

    return put


def _with_update(node: Node, value: float) -> Node:
    return node.model_copy(update={"cpu": node.cpu.model_copy(update={"adam_params_per_s": value})})


def _with_core(node: Node, value: float) -> Node:
    return node.model_copy(update={"cpu": node.cpu.model_copy(update={"core_bandwidth": value})})


INPUTS: dict[str, _Input] = {
    **{
        f"gpu.sustained_flops_per_s.{precision}": _Input("FLOP/s", True, _with_sustained(precision))
        for precision in get_args(Precision)
    },
    "cpu.adam_params_per_s": _Input("param/s", False, _with_update),
    "cpu.core_bandwidth": _Input("B/s", False, _with_core),
    "swap_limit": _Input("B/s", False, lambda node, value: node.model_copy(update={"swap_limit": value})),
}
"""By path, as a cluster file's `with:` spells it."""


class Calibration(NamedTuple):
    """A calibration file that was read; `values` are in base units."""

    document: Document
    file: CalibrationFile
    values: dict[str, float]


def load_calibration(path: str | os.PathLike[str]) -> Calibration:
    """The calibration in a file; BadInput with everything wrong about it."""
    document = read(path)
    file = validate(document, CalibrationFile)
    values, problems = {}, []
    for name, stated in file.values.items():
        if name not in INPUTS:
            hint = nearest(name, INPUTS) or f"known here: {', '.join(INPUTS)}"
            message = f"unknown key `{name}` in values"
            problems.append(document.problem(("values", name), "ZP012", message, "", hint, key=True))
            continue
        try:
            values[name] = parse(stated.value, INPUTS[name].unit)
        except UnitError as error:
            place = ("values", name, "value")
            problems.append(document.problem(place, "ZP011", f"values.{name}: {error}"))
            continue
        if values[name] <= 0:
            message = f"values.{name}: must be greater than 0"
            problems.append(document.problem(("values", name, "value"), "ZP010", message))
    if problems:
        raise BadInput(*problems)
    return Calibration(document, file, values)


def calibrated(cluster: Cluster, calibration: Calibration, runtime: str = "") -> Cluster:
    """The cluster with a calibration's values; those of other parts than its own are left out, which is said.

    `runtime` is that of the plan: the overlap and the residuals of another one's runs are not its own.
    What a command line sets (`--set`) stays: it is the last word on an input.
    """
    node, file, source = cluster.node, calibration.file, calibration.document.name
    provenance, fits = dict(cluster.provenance), _fitting(cluster, file)
    for name, value in calibration.values.items():
        given = provenance.get(name)
        if name in fits and not (given is not None and given.source.startswith("--")):
            node = INPUTS[name].put(node, value)
            runs = ", ".join(file.values[name].runs)
            provenance[name] = Provenance("calibrated", f"calibrated from {source}: {runs}")
    _check(calibration, node)
    whole = _whole(cluster, file)
    return replace(
        cluster,
        node=node,
        provenance=provenance,
        warnings=(
            *cluster.warnings,
            *_left_out(cluster, calibration, fits, whole),
            *(_of_other_runs(calibration, runtime, cluster.nodes) if whole and runtime else ()),
        ),
        calibrated=_calibrated(file, source) if whole else None,
    )


def _fitting(cluster: Cluster, file: CalibrationFile) -> set[str]:
    """Inputs of parts that are the calibration's own."""
    machine, gpu = cluster.node.name == file.machine, cluster.node.gpu.name == file.gpu
    return {name for name, each in INPUTS.items() if (gpu if each.of_gpu else machine)}


def _whole(cluster: Cluster, file: CalibrationFile) -> bool:
    return cluster.node.name == file.machine and cluster.node.gpu.name == file.gpu


def _calibrated(file: CalibrationFile, source: str) -> Calibrated:
    residuals = {kind: (each.runs, each.low, each.high) for kind, each in file.residuals.items()}
    here, between = (each.value if each else None for each in (file.overlap, file.overlap_between_nodes))
    return Calibrated(source, file.runtime, here, residuals, between)


def _of_other_runs(calibration: Calibration, runtime: str, nodes: int) -> Iterator[str]:
    file, source = calibration.file, calibration.document.name
    if file.runtime != runtime:
        what = "its overlap and residuals are not taken"
        yield f"{source} is of runs under {file.runtime}: {what} for {runtime}"
    elif nodes > 1 and file.overlap is not None and file.overlap_between_nodes is None:
        yield f"{source} has the overlap of runs on one node: it is not taken for ranks on several"
    elif nodes == 1 and file.overlap is None and file.overlap_between_nodes is not None:
        yield f"{source} has the overlap of runs on several nodes: it is not taken for one"


def _left_out(cluster: Cluster, calibration: Calibration, fits: set[str], whole: bool) -> Iterator[str]:
    file, source = calibration.file, calibration.document.name
    names = [name for name in calibration.values if name not in fits]
    if names or not whole:
        what = f"{', '.join(names)} and residuals" if names else "its overlap and residuals"
        of, here = f"{file.machine} with {file.gpu}", f"{cluster.node.name} with {cluster.node.gpu.name}"
        yield f"{source} is of {of}: {what} are not taken for {here}"


def _check(calibration: Calibration, node: Node) -> None:
    """Refuse values that the machine's own numbers rule out."""
    wrong = [
        calibration.document.problem(
            ("values", ".".join(map(str, each.path)), "value"), "ZP010", each.message
        )
        for each in contradictions(node)
        if ".".join(map(str, each.path)) in calibration.values
    ]
    if wrong:
        raise BadInput(*wrong)


__all__ = ["Calibration", "CalibrationFile", "calibrated", "load_calibration"]


def plain(file: CalibrationFile) -> dict[str, Any]:
    """The file as data, in the order of its keys, without what is empty."""
    data: dict[str, Any] = file.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {"schema": SCHEMA, **data}
