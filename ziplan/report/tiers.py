"""The table of tiers: need against have, and the article's test of each link."""

from __future__ import annotations

import math

from ziplan.estimate import Estimate, TierMemory, TierTest
from ziplan.report.figures import tokens_per_rank
from ziplan.report.lines import Line, Span
from ziplan.report.phrases import spread
from ziplan.report.table import Column, table
from ziplan.units import show


def tier_table(estimate: Estimate, width: int) -> list[Line]:
    """Each tier's need against what it has, and the article's test of its link."""
    names = list(dict.fromkeys((*estimate.memory, *estimate.tiers)))
    memories = [estimate.memory.get(name) for name in names]
    tests = [estimate.tiers.get(name) for name in names]
    columns = [
        Column("tier", [_tier_name(estimate, name) for name in names], right=False),
        Column("need", [_need(memory) for memory in memories]),
        Column("have", [show(memory.available, "B", 3) if memory else "-" for memory in memories]),
        Column("used", [_used(memory) for memory in memories]),
        Column("link", [show(test.bandwidth, "B/s", 3) if test else "-" for test in tests], True, 1),
        Column("tokens needed", [_tokens_needed(test) for test in tests], True, 2),
        Column("tokens here", [_tokens_here(estimate, name) for name in names], True, 3),
        Column("margin", [_hiding(test) for test in tests]),
    ]
    return table(columns, width)


def _tier_name(estimate: Estimate, name: str) -> str:
    tier = estimate.cluster.node.tiers.get(name)
    return f"{name} per {'GPU' if tier.scope == 'gpu' else 'node'}" if tier else name


def _tokens_here(estimate: Estimate, name: str) -> str:
    """Tokens of a micro-step that hide the tier: of one rank, or of all ranks that share its reads."""
    if name not in estimate.tiers:
        return "-"
    tokens = f"{tokens_per_rank(estimate):,.0f}"
    tier = estimate.cluster.node.tiers.get(name)
    ranks = float(estimate.plan.dp_degree)
    return f"{ranks:,.0f} x {tokens}" if tier and tier.scope == "node" and ranks > 1 else tokens


def _need(memory: TierMemory | None) -> str:
    if memory is None:
        return "-"
    return spread(memory.low, memory.high, "B")


def _used(memory: TierMemory | None) -> Span | str:
    if memory is None or not memory.available > 0:
        return "-"
    style = "red" if memory.low > memory.available else "yellow" if memory.high > memory.available else ""
    return Span(f"{memory.high / memory.available:.0%}", style)


def _hiding(test: TierTest | None) -> Span | str:
    if test is None:
        return "-"
    if math.isnan(test.hiding_margin):
        return Span("unknown")
    return Span(f"{show(test.hiding_margin, '1', 3)}x", "red" if test.hiding_margin < 1 else "")


def _tokens_needed(test: TierTest | None) -> str:
    if test is None:
        return "-"
    return "unknown" if math.isnan(test.required_tokens) else f"{test.required_tokens:,.0f}"
