"""What a sweep found, as data for every form of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, NamedTuple

from ziplan.estimate import Estimate
from ziplan.report.figures import HOUR, MILLION, flash_writes_per_token
from ziplan.report.json import plan_object
from ziplan.solve.problem import Binding


class Axis(NamedTuple):
    """A field that is varied, by its path, and its values as they are written."""

    path: str
    values: tuple[str, ...]


class Outcome(NamedTuple):
    """What the best plan of one problem comes to, as plain numbers; NaN where a time is unknown.

    Seconds per token count all ranks together; GPU-seconds per token those of every GPU. `dollars_per_token`
    is None where nobody has stated a price, `drive_lifetime` (seconds) where it is unknown or nothing is
    written. Flash writes are those of all nodes.
    """

    verdict: str
    model: str
    machine: str
    cluster: str
    runtime: str
    gpus: int
    plan: Mapping[str, Any]
    step_time: float
    step_low: float
    step_high: float
    tokens_per_step: float
    time_per_token: float
    gpu_time_per_token: float
    dollars_per_token: float | None
    flash_writes_per_token: float
    drive_lifetime: float | None
    binding: Binding
    share_of_peak: float | None = None
    """Model FLOPs (6 per parameter and token) of a GPU's peak in the precision that computes; None where
    nobody has stated that."""
    likely_fits: bool = True
    """Whether the middle of every need is there; a tight plan of which it is not more likely fails."""

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second, all ranks together."""
        return 1 / self.time_per_token

    @property
    def gpu_hours_per_million_tokens(self) -> float:
        """GPU-hours of all GPUs for a million tokens."""
        return self.gpu_time_per_token * MILLION / HOUR


def outcome_of(best: Estimate, binding: Binding, runtime: str) -> Outcome:
    """The numbers of one estimate that points are compared by."""
    low, high = best.interval
    tokens, step = float(best.tokens_per_step), float(best.step_time)
    return Outcome(
        verdict=best.verdict,
        model=best.workload.model.name,
        machine=best.cluster.node.name,
        cluster=best.cluster.label,
        runtime=runtime,
        gpus=int(best.gpus),
        plan=plan_object(best.plan),
        step_time=step,
        step_low=step * low,
        step_high=step * high,
        tokens_per_step=tokens,
        time_per_token=float(best.time_per_token),
        gpu_time_per_token=float(best.gpus * best.time_per_token),
        dollars_per_token=None if best.step_cost is None else float(best.step_cost) / tokens,
        flash_writes_per_token=flash_writes_per_token(best),
        drive_lifetime=None if best.drive_lifetime is None else float(best.drive_lifetime),
        binding=binding,
        share_of_peak=_share_of_peak(best),
        likely_fits=bool(best.likely_fits),
    )


def _share_of_peak(best: Estimate) -> float | None:
    peak = best.cluster.node.gpu.peak_flops_per_s.get(best.workload.precision)
    return float(best.model_flops_per_s_per_gpu) / peak if peak else None


class Row(NamedTuple):
    """One point of the grid: its values, and its outcome or why it has none."""

    values: tuple[str, ...]
    outcome: Outcome | None
    refused: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The verdict on the point; "refused" where its values contradict each other."""
        return self.outcome.verdict if self.outcome else "refused"


@dataclass(frozen=True)
class Sweep:
    """Points of a grid in its order, the last axis fastest; `front` are places among `rows`.

    `asked` is how many points the grid has: more than there are rows where the sweep was interrupted.
    """

    axes: tuple[Axis, ...]
    rows: tuple[Row, ...]
    front: tuple[int, ...]
    asked: int
    priced: bool
    """Whether every point that has a time has a price, so that the front counts dollars."""

    @property
    def outcomes(self) -> list[Outcome]:
        """Those of the points that have one."""
        return [row.outcome for row in self.rows if row.outcome is not None]

    @property
    def unsolved(self) -> list[tuple[str, ...]]:
        """Values of the points that an interrupt left unsolved: the grid's last ones."""
        return list(islice(product(*(axis.values for axis in self.axes)), len(self.rows), self.asked))

    @property
    def complete(self) -> bool:
        """Whether every point was solved."""
        return len(self.rows) == self.asked
