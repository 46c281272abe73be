"""Need of memory: a bar for each tier and phase, stacked by the ledger's largest lines, and what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ziplan.estimate import Estimate
from ziplan.report.charts.axis import bytes_axis, heading
from ziplan.report.charts.chart import NARROW, Chart
from ziplan.report.charts.colours import SERIES, light
from ziplan.report.dossier import Dossier
from ziplan.report.phrases import shown, spread
from ziplan.units import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

MOST_PARTS = len(SERIES)
ROW, AROUND, WORDS = 22.0, 78.0, 17.0
"""Pixels of a phase's bar, of a panel's title and axis, of a line of its legend."""
BAR, UNUSED = 0.72, 26.0
"""Share of its row that a bar takes; pixels of a tier that nothing needs."""


class Part(NamedTuple):
    """A colour of a tier's bars: a line of the ledger, or the sum of the small ones."""

    name: str
    colour: str
    amounts: Sequence[float]
    """High end of the need in each phase, bytes."""


def parts(estimate: Estimate, tier: str) -> list[Part]:
    """The lines of a tier that are largest in some phase, and the sum of the others."""
    phases = list(estimate.memory[tier].phases)
    of_name: dict[str, list[float]] = {}
    for line in estimate.ledger.lines:
        if line.tier == tier and line.high > 0:
            amounts = of_name.setdefault(line.name, [0.0] * len(phases))
            for place, phase in enumerate(phases):
                amounts[place] += line.high if phase in line.phases else 0.0
    ranked = sorted(of_name, key=lambda name: -max(of_name[name]))
    kept, rest = ranked[:MOST_PARTS], ranked[MOST_PARTS:]
    # In the ledger's order, so that what stays through all phases lies at the bottom of each.
    kept.sort(key=lambda name: (-min(of_name[name][1:]), -max(of_name[name])))
    kinds = [Part(name, colour, of_name[name]) for name, colour in zip(kept, SERIES, strict=False)]
    if rest:
        sums = [sum(of_name[name][place] for name in rest) for place in range(len(phases))]
        kinds.append(Part(f"{counted(len(rest), 'smaller line')}", "grey", sums))
    return kinds


def _height(dossier: Dossier, width: float) -> float:
    return sum(_panel(dossier.estimate, tier, width) for tier in dossier.estimate.memory)


def _panel(estimate: Estimate, tier: str, width: float) -> float:
    if not parts(estimate, tier):
        return UNUSED
    rows, words = ROW * len(estimate.memory[tier].phases), WORDS * len(parts(estimate, tier))
    return AROUND + (rows + words + 8 if width <= NARROW else max(rows, words + 20))


def _draw(figure: FigureBase, dossier: Dossier, width: float) -> None:
    tiers = list(dossier.estimate.memory)
    heights = [_panel(dossier.estimate, tier, width) for tier in tiers]
    places = figure.subfigures(len(tiers), 1, height_ratios=heights, squeeze=False)
    for place, tier in zip(places[:, 0], tiers, strict=True):
        name = f"{tier} per {_whose(dossier.estimate, tier)}"
        if not parts(dossier.estimate, tier):
            heading(place, f"{name}: unused", width)
            continue
        there = shown(dossier.estimate.memory[tier].available, "B")
        heading(place, f"{name}: {there} to use", width)
        axes = place.subplots()
        _tier(axes, dossier.estimate, tier, width)
        side = "outside lower left" if width <= NARROW else "outside right upper"
        place.legend(handles=axes.get_legend_handles_labels()[0], loc=side)


def _tier(axes: Axes, estimate: Estimate, tier: str, width: float) -> None:
    memory = estimate.memory[tier]
    phases = list(memory.phases)
    left = [0.0] * len(phases)
    for part in parts(estimate, tier):
        axes.barh(
            phases,
            part.amounts,
            BAR,
            left=left,
            label=part.name,
            color=light(part.colour),
            edgecolor=light("paper"),
            linewidth=0.6,
        )
        left = [before + amount for before, amount in zip(left, part.amounts, strict=True)]
    for place, phase in enumerate(phases):
        low, high = memory.phases[phase]
        if high - low > 0.004 * memory.available:
            axes.vlines(low, place - BAR / 2, place + BAR / 2, color=light("ink"), linewidth=1.5)
    axes.axvline(memory.available, color=light("bad"), linewidth=2.0)
    bytes_axis(axes, width, 1.03 * max(memory.available, memory.high))
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def _whose(estimate: Estimate, tier: str) -> str:
    known = estimate.cluster.node.tiers.get(tier)
    return "GPU" if known is not None and known.scope == "gpu" else "node"


def _says(dossier: Dossier) -> str:
    needs = [
        f"{tier} needs at most {spread(each.low, each.high, 'B')} of {shown(each.available, 'B')}"
        for tier, each in dossier.estimate.memory.items()
    ]
    return "; ".join(needs)


CHART = Chart(
    title="Memory by tier and phase",
    lacks=lambda dossier: "" if dossier.estimate.memory else "no tier has a need",
    says=_says,
    height=_height,
    draw=_draw,
)
