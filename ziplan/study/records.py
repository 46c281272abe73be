"""Published measurements as files (`ziplan.measurement/1`): one source a file, one run a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from ziplan.errors import BadInput, Problem
from ziplan.files import Document, read, validate
from ziplan.files.record import FileRecord, adding_up
from ziplan.files.validation import WRONG_VALUE
from ziplan.units import Precision
from ziplan.workload.loading import Loading
from ziplan.workload.loss import Loss
from ziplan.workload.model import Kernels
from ziplan.workload.model_file import CompanionEntry
from ziplan.workload.training import MOST_WORKERS, Optimizer, Threads, Trainable

SCHEMA = "ziplan.measurement/1"
SHIPPED = Path(__file__).parent / "measurements"

Outcome = Literal["fits", "oom"]
Medium = Literal["hbm", "dram", "nvme"]
Phase = Literal["load", "init", "forward", "backward", "step", "save"]


def _listed(value: object) -> object:
    """One name as a list of one."""
    return [value] if isinstance(value, str) else value


_PHASE = {"enum": list(get_args(Phase))}
Phases = Annotated[
    tuple[Phase, ...],
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [_PHASE, {"type": "array", "items": _PHASE}]}),
]
"""One phase, or several where the source does not tell which of them it was."""


class Entry(FileRecord):
    """A part of a record."""


class SourceEntry(Entry):
    """Who published the runs of a file, and where."""

    title: str
    url: str


class ClusterEntry(Entry):
    """The machine as a cluster.yaml names it."""

    machine: str
    nodes: int = Field(default=1, ge=1)
    with_: dict[str, str | int | float] = Field(default_factory=dict, alias="with")


class TrainingEntry(Entry):
    """The training settings that a prediction depends on, those of a model.yaml.

    Where a published run says nothing else, PyTorch's allocators worked as by default: pinned blocks
    rounded up, no segments that grow.
    """

    sequence_length: int = Field(ge=1)
    precision: Precision
    attention: Literal["flash", "eager"]
    attention_kernel: Literal["flash-2"] | None = None
    kernels: Kernels | None = None
    loss: Loss | None = None
    softmax: Literal["fp32", "16-bit"] | None = None
    dropout: bool | None = None
    master_precision: Literal["fp32", "bf16"] = "fp32"
    optimizer: Optimizer = Field(default_factory=lambda: Optimizer(fused=None))
    trainable: Trainable = "all"
    loading: Loading = Field(default_factory=Loading)
    data_workers: int | None = Field(default=None, ge=0, le=MOST_WORKERS)
    optimizer_threads: Threads | None = None
    gradient_clipping: bool | None = None
    saving: Literal["sharded", "gathered"] = "sharded"
    pinned_rounding: bool = True
    expandable_segments: bool = False


class ZeroEntry(Entry):
    """Keys of `zero_optimization` that a run's config had, in elements; others follow from the plan.

    `offload_optimizer_pin_memory` is `pin_memory` of `offload_optimizer`, on unless it is said to be off.
    """

    stage3_prefetch_bucket_size: float | None = Field(default=None, ge=0)
    stage3_max_live_parameters: float | None = Field(default=None, ge=0)
    stage3_max_reuse_distance: float | None = Field(default=None, ge=0)
    stage3_param_persistence_threshold: float | None = Field(default=None, ge=0)
    reduce_bucket_size: float | None = Field(default=None, gt=0)
    offload_optimizer_pin_memory: bool | None = None


class RuntimeEntry(Entry):
    """The runtime that predicts the run, and the software that ran it.

    `version` is the release of DeepSpeed that ran, under Megatron too; where the source states none, the
    month it was written in; where it is left out, the newest; PyTorch where there was no DeepSpeed, and a
    stage that divides nothing stands for it. Of FSDP it is FSDP1, and left out it is FSDP2. `overlap_comm` is
    that key of DeepSpeed's config, `zero` others.
    """

    name: str = "deepspeed"
    version: str | None = None
    overlap_comm: bool | None = None
    zero: ZeroEntry | None = None
    published: str = ""


Home = str | dict[str, float]


class PlacementEntry(Entry):
    """Where each kind of state lived: a tier, or tiers with fractions. Gradients follow the optimizer."""

    params: Home = "hbm"
    grads: Home | None = None
    optimizer: Home = "hbm"
    checkpoints: Home = "hbm"

    @field_validator("params", "grads", "optimizer", "checkpoints")
    @classmethod
    def _adds_up(cls, home: Home | None) -> Home | None:
        return dict(adding_up(home)) if isinstance(home, dict) else home


class PlanEntry(Entry):
    """The plan that was run; `dp_degree` is all GPUs over the other degrees unless it is given."""

    zero_stage: int = Field(ge=0, le=3)
    placement: PlacementEntry = PlacementEntry()
    dp_degree: int | None = Field(default=None, ge=1)
    tp_degree: int = Field(default=1, ge=1)
    pp_degree: int = Field(default=1, ge=1)
    vpp_degree: int = Field(default=1, ge=1)
    micro_batch_size: int = Field(ge=1)
    accumulation_steps: int = Field(default=1, ge=1)
    activation_checkpointing: Literal["none", "selective", "full"]
    prefetch_depth: int = Field(default=1, ge=0)
    tile_count: int = Field(default=1, ge=1)
    sub_group_params: float = Field(default=1e9, gt=0)
    optimizer_buffer_count: int = Field(default=4, ge=0)


RATES = ("step_time_s", "tokens_per_s", "tokens_per_s_per_gpu", "flops_per_s_per_gpu")


class MeasuredEntry(Entry):
    """What was measured: one rate in the source's own terms, whether the run fitted, how much it used.

    Of a run that went out of memory `tier` and `phase` say where, as far as the source tells.
    `peak_bytes` is the most that was seen used of one instance of a tier, of a GPU or of a node's
    host memory: in the phases named, else over the whole run. `convention` says what a FLOP/s
    counts: `hardware` everything computed (8 per parameter and token with full checkpointing, and
    attention), `model` 6 per parameter and token.
    """

    step_time_s: float | None = Field(default=None, gt=0)
    tokens_per_s: float | None = Field(default=None, gt=0)
    tokens_per_s_per_gpu: float | None = Field(default=None, gt=0)
    flops_per_s_per_gpu: float | None = Field(default=None, gt=0)
    convention: Literal["hardware", "model"] | None = None
    outcome: Outcome = "fits"
    tier: Medium | None = None
    phase: Phases = ()
    peak_bytes: dict[Medium, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_end(self) -> MeasuredEntry:
        if self.outcome == "fits" and self.tier is not None:
            raise ValueError("tier says where a run went out of memory: it goes with outcome: oom")
        if self.outcome == "fits" and self.phase and not self.peak_bytes:
            raise ValueError(
                "phase says when memory ran out or was at its peak: it goes with oom or peak_bytes"
            )
        if self.outcome == "oom" and self.peak_bytes:
            raise ValueError("a run that went out of memory has no peak_bytes")
        return self

    @model_validator(mode="after")
    def _one_rate(self) -> MeasuredEntry:
        given = [name for name in RATES if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"one rate is enough: {' and '.join(given)} may contradict each other")
        if not given and not self.peak_bytes and "outcome" not in self.model_fields_set:
            raise ValueError(f"nothing measured: give one of {', '.join(RATES)}, outcome or peak_bytes")
        if given and self.outcome == "oom":
            raise ValueError(f"a run that went out of memory has no {given[0]}")
        if (self.flops_per_s_per_gpu is None) != (self.convention is None):
            raise ValueError("flops_per_s_per_gpu and convention (hardware or model) go together")
        return self

    @property
    def timed(self) -> bool:
        """Whether a rate was measured."""
        return any(getattr(self, name) is not None for name in RATES)


Id = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]


class RecordEntry(Entry):
    """One published run: what ran, on what, and what came out.

    `url` is the page of this run where it has one of its own within the source. `companions` are the
    other models of the job, shipped shapes.
    """

    id: Id
    locator: str
    url: str = ""
    cluster: ClusterEntry
    model: str | None = None
    shape: dict[str, Any] | None = None
    companions: tuple[CompanionEntry, ...] = ()
    training: TrainingEntry
    runtime: RuntimeEntry = RuntimeEntry()
    plan: PlanEntry
    measured: MeasuredEntry
    quality: Literal["exact", "read_off_plot"]
    assumed: tuple[str, ...] = ()
    calibration: bool = False
    notes: str = ""

    @model_validator(mode="after")
    def _one_model(self) -> RecordEntry:
        if (self.model is None) == (self.shape is None):
            raise ValueError("name one model: either `model` (a shipped shape) or an inline `shape`")
        return self


class UnpredictableEntry(Entry):
    """A published run that no prediction can be made of, with the reason."""

    id: Id
    locator: str
    url: str = ""
    outcome: Literal["fits", "oom", "config_error", "swap_buffer_error", "hang"]
    tier: Medium | None = None
    reason: str = Field(min_length=1)


class RecordFile(Entry):
    """A file of records, and of runs of the same source that cannot be predicted."""

    schema_name: Literal["ziplan.measurement/1"] = Field(alias="schema")
    source: SourceEntry
    records: list[RecordEntry] = Field(default_factory=list)
    unpredictable: list[UnpredictableEntry] = Field(default_factory=list)

    @model_validator(mode="after")
    def _something(self) -> RecordFile:
        if not self.records and not self.unpredictable:
            raise ValueError("no run: give `records`, or `unpredictable` with the reasons")
        return self


@dataclass(frozen=True)
class Record:
    """One run, its source, and its place in the file that it came from."""

    entry: RecordEntry
    source: SourceEntry
    document: Document
    index: int

    def problem(self, message: str, *path: str | int, help: str = "") -> Problem:
        """A problem with a part of the record."""
        return self.document.problem(("records", self.index, *path), WRONG_VALUE, message, help)

    def relocated(self, error: BadInput, *path: str | int) -> BadInput:
        """Problems of something that the record names, at the place where it does."""
        return BadInput(
            *(self.problem(problem.message, *path, help=problem.help) for problem in error.problems)
        )


@dataclass(frozen=True)
class Unpredictable:
    """A run that cannot be predicted, its source, and its place in the file that it came from."""

    entry: UnpredictableEntry
    source: SourceEntry
    document: Document
    index: int

    def problem(self, message: str, *path: str, help: str = "") -> Problem:
        """A problem with a part of the entry."""
        return self.document.problem(("unpredictable", self.index, *path), WRONG_VALUE, message, help)


Listed = Record | Unpredictable


def shipped_files() -> list[Path]:
    """The files of records that come with ziplan."""
    return sorted(SHIPPED.glob("*.yaml"))


def load_records(paths: Iterable[Path]) -> list[Record]:
    """The records of some files; BadInput with every problem of every file."""
    return [each for each in load_runs(paths) if isinstance(each, Record)]


def load_runs(paths: Iterable[Path]) -> list[Listed]:
    """The records of some files, and the runs that they list as unpredictable."""
    problems: list[Problem] = []
    runs: list[Listed] = []
    for path in paths:
        found, wrong = _runs_of(path)
        runs += found
        problems += wrong
    problems += _repeated(runs)
    if problems:
        raise BadInput(*problems)
    return runs


def _runs_of(path: Path) -> tuple[list[Listed], tuple[Problem, ...]]:
    """A file's runs, or what is wrong with it."""
    try:
        document = read(path, f"measurements/{path.name}" if path.parent == SHIPPED else "")
        file = validate(document, RecordFile)
    except BadInput as error:
        return [], error.problems
    source = file.source
    records = [Record(entry, source, document, index) for index, entry in enumerate(file.records)]
    others = [Unpredictable(entry, source, document, index) for index, entry in enumerate(file.unpredictable)]
    return [*records, *others], ()


def _repeated(runs: Iterable[Listed]) -> Iterator[Problem]:
    seen: dict[str, Listed] = {}
    for run in runs:
        first = seen.setdefault(run.entry.id, run)
        if first is not run:
            yield run.problem(f"id: {run.entry.id!r} is also a record of {first.document.name}", "id")
