"""How far predictions of a kind were off when they were held against published runs."""

from __future__ import annotations

from ziplan.hardware.cluster import Cluster
from ziplan.plan import Plan

UNCHECKED = (0.5, 2.0)
"""Factors on the step time of a kind of run that no published measurement has checked yet."""


def residuals(runtime: str, cluster: Cluster, plan: Plan) -> tuple[float, float, str]:
    """(low factor, high factor, where they come from) for the step time of a plan."""
    return (*UNCHECKED, "no published run of this kind has been compared yet: a factor of two is assumed")
