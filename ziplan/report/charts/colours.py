"""Colours of charts and pages: by their part, in daylight and in the dark.

A drawing is made in the colours of daylight. In SVG each becomes a variable of the style sheet, so that
one drawing follows the reader's scheme. Every text colour has a contrast of at least 4.5 on its ground.
"""

from __future__ import annotations

from typing import NamedTuple


class Colour(NamedTuple):
    """One part's colour in both schemes. No two parts share their light one: it is what stands for them."""

    light: str
    dark: str


COLOURS: dict[str, Colour] = {
    "paper": Colour("#fffffe", "#15181c"),
    "ink": Colour("#1c2126", "#e8eaed"),
    "muted": Colour("#56606a", "#a9b3bd"),
    "rule": Colour("#d5dadf", "#363d45"),
    "blue": Colour("#2a66a8", "#7fb4ee"),
    "orange": Colour("#c0601a", "#ee9d63"),
    "green": Colour("#3a8455", "#7fc79b"),
    "purple": Colour("#8058a8", "#bf9fe2"),
    "teal": Colour("#1b8590", "#6bc6cf"),
    "ochre": Colour("#96781f", "#d8bd6a"),
    "pink": Colour("#b4477c", "#e892ba"),
    "grey": Colour("#8a949e", "#77818b"),
    "bad": Colour("#b3261e", "#ff9d94"),
    "fair": Colour("#8a5a00", "#f0bd62"),
    "good": Colour("#1f6f3d", "#86d3a2"),
    "link": Colour("#1a5a9c", "#8fbff5"),
    "good_ground": Colour("#bfe3cb", "#1d5233"),
    "fair_good_ground": Colour("#e2f2e6", "#193425"),
    "fair_bad_ground": Colour("#fbe6bd", "#4d3a12"),
    "bad_ground": Colour("#f6cfca", "#5a2420"),
    "empty_ground": Colour("#eef0f2", "#23282e"),
}

GROUNDS_OF: dict[str, tuple[str, ...]] = {
    "ink": ("paper", *(name for name in COLOURS if name.endswith("_ground"))),
    **dict.fromkeys(("muted", "bad", "fair", "good", "link"), ("paper",)),
}
"""Colours of texts and the grounds that they stand on."""

SERIES = ("blue", "orange", "teal", "purple", "ochre", "pink", "green")
"""Parts of a stack or kinds of a row, in the order in which they are given out; grey is the rest."""


def light(name: str) -> str:
    """The colour that a part is drawn in."""
    return COLOURS[name].light


def variables(indent: str = "") -> str:
    """The colours as variables of a style sheet, dark where the reader asks for it, light on paper."""
    day, night = (
        " ".join(f"--{_css(name)}: {getattr(colour, scheme)};" for name, colour in COLOURS.items())
        for scheme in ("light", "dark")
    )
    return (
        f"{indent}:root {{ {day} }}\n"
        f"{indent}@media screen and (prefers-color-scheme: dark) {{ :root {{ {night} }} }}\n"
    )


def as_variables(svg: str) -> str:
    """A drawing with every colour replaced by its variable."""
    for name, colour in COLOURS.items():
        svg = svg.replace(colour.light, f"var(--{_css(name)})")
    return svg


def _css(name: str) -> str:
    return name.replace("_", "-")
