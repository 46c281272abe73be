"""How far predictions of a kind were off when they were held against published runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from ziplan.estimate.residuals import OWN_SOURCE, RESIDUALS
from ziplan.hardware.cluster import Calibrated, Cluster
from ziplan.plan import Plan

UNCHECKED = (0.5, 2.0)
"""Factors on the step time of a runtime that no published run has checked yet."""

FEWEST_RUNS = 2
"""With fewer runs of a kind, those of every kind under the same runtime are taken, or `UNCHECKED`."""

MANY_RUNS = 10
"""From so many runs on, the interval leaves out the tenth at either end; with fewer it is the range."""

NARROWEST = 1.15
"""No interval is narrower than this factor either way.

The same run differs by more between two releases of a runtime or two days on one cluster.
"""

NVME, PARAMS_ON_HOST, OPTIMIZER_ON_HOST, ON_GPU = (
    "NVMe",
    "parameters and optimizer on the host",
    "optimizer on the host",
    "nothing offloaded",
)


def kind_of(cluster: Cluster, plan: Plan) -> str:
    """The kind of run that a plan is: what of its state lives outside the GPU, and how far out."""
    placement = plan.placement
    states = (placement.params, placement.grads, placement.optimizer)
    if any(_share(cluster, state, "nvme") > 0 for state in states):
        return NVME
    if _share(cluster, placement.params, "dram") > 0:
        return PARAMS_ON_HOST
    return OPTIMIZER_ON_HOST if _share(cluster, placement.optimizer, "dram") > 0 else ON_GPU


def _share(cluster: Cluster, state: Mapping[str, float], medium: str) -> float:
    used = ((cluster.node.tiers[name], part) for name, part in state.items() if part > 0)
    return sum(part for tier, part in used if tier.medium == medium)


class Published(NamedTuple):
    """What published runs say of a step time: factors of its interval, in words, and the runs' own range."""

    low: float
    high: float
    source: str
    range: tuple[float, float] | None = None
    """Measured over predicted; None where no run was compared."""


def residuals(runtime: str, cluster: Cluster, plan: Plan) -> Published:
    """The interval of a plan's step time as runs of its kind give it: a calibration's, else published."""
    kind = kind_of(cluster, plan)
    published, calibrated = _published_of(runtime, kind), cluster.calibrated
    if calibrated is None or calibrated.runtime != runtime or kind not in calibrated.residuals:
        return published
    return _calibrated(calibrated, kind, published)


def _calibrated(calibrated: Calibrated, kind: str, published: Published) -> Published:
    """The range of a calibration's runs of a kind, each predicted from the others.

    One run has no others: published runs of its kind then say how far apart two of them may lie.
    """
    (count, low, high), source = calibrated.residuals[kind], f"calibrated from {calibrated.source}"
    if count >= FEWEST_RUNS:
        took = f"each predicted from the others, took {low:.2f} to {high:.2f} times the prediction"
        return _at_least(low, high, f"{count} runs of this kind ({kind}), {took} ({source})")
    apart = math.sqrt(published.high / published.low)
    took = f"took {low:.2f} times the prediction ({source})"
    said = f"one run of this kind ({kind}) {took}; published ones lie a factor {apart**2:.2f} apart"
    return _at_least(low / apart, high * apart, said)


def _at_least(low: float, high: float, said: str) -> Published:
    """A range as an interval that is not too narrow."""
    ends = (min(low, 1 / NARROWEST), max(high, NARROWEST))
    if ends != (low, high):
        said += f", and at least a factor of {NARROWEST} either way"
    return Published(*ends, said, (low, high))


def _published_of(runtime: str, kind: str) -> Published:
    count, low, high = RESIDUALS.get(runtime, {}).get(kind, (0, 1.0, 1.0))
    if count >= FEWEST_RUNS:
        own = OWN_SOURCE.get(runtime, {}).get(kind, 0)
        return _published(count, f"runs of this kind ({kind})", low, high, _shared(count, own))
    known = RESIDUALS.get(runtime, {}).values()
    if not known:
        said = "no published run of this runtime has been compared: a factor of two is assumed"
        return Published(*UNCHECKED, said)
    count = sum(each[0] for each in known)
    low, high = min(each[1] for each in known), max(each[2] for each in known)
    found = _published(count, f"runs of {runtime}", low, high)
    said = f"{found.source}; too few of this kind ({kind}) to tell, so a factor of two at the least"
    least, most = UNCHECKED
    return found._replace(low=min(found.low, least), high=max(found.high, most), source=said)


def _shared(count: int, own: int) -> str:
    """How many of the runs are of a page that a parameter of the prediction was taken from."""
    if not own:
        return ""
    return f", {'all' if own >= count else own} of pages that a rate or a time was taken from too"


def widened(published: Published, fastest: float, slowest: float) -> tuple[float, float, str]:
    """(low factor, high factor, where they come from), no narrower than what assumed rates leave open.

    `fastest` and `slowest` are factors on the step time with every assumed rate at its high and low end.
    """
    low, high = min(published.low, fastest), max(published.high, slowest)
    if (low, high) == (published.low, published.high) or not (math.isfinite(low) and math.isfinite(high)):
        return published.low, published.high, published.source
    said = f"{published.source}; widened: assumed rates alone make it {fastest:.2f} to {slowest:.2f} times"
    return low, high, said


def _published(count: int, what: str, low: float, high: float, shared: str = "") -> Published:
    of = "8 of 10 among " if count >= MANY_RUNS else ""
    took = f"took {low:.2f} to {high:.2f} times the prediction (ziplan validate)"
    return _at_least(low, high, f"{of}{count} published {what} {took}{shared}")
