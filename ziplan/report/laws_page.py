"""The page of laws (docs/laws.md): every law with its formula, units and source."""

from __future__ import annotations

import importlib
import pkgutil
from itertools import groupby

import ziplan.laws
import ziplan.runtimes
from ziplan.laws.law import LAWS, Law
from ziplan.report.law_uses import WORDS, use_of

_HEAD = """\
# Laws

Every number that ziplan predicts is one of these formulas applied; `ziplan explain` prints them
with the numbers of a plan. A law that no plan is worked out with says so: it belongs to the
article's example (`ziplan explain article`), or is background, held against the figures of its
source in the tests. Names are explained in [names.md](names.md). A law whose source is
`article` comes from the section named, one whose source is `arXiv:2104.07857` from the
ZeRO-Infinity paper; where the two count differently there are two laws. This page is generated
from the laws' own source.
"""


def every_law() -> list[Law]:
    """All laws, those of the runtimes too, grouped by module, as written within each."""
    for package in (ziplan.laws, ziplan.runtimes):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    return sorted(LAWS.values(), key=lambda law: (not law.module.startswith("ziplan.laws."), law.module))


def laws_page() -> str:
    """The page, in Markdown."""
    parts = [_HEAD]
    for module, laws in groupby(every_law(), key=lambda law: law.module):
        parts.append(f"## {module.removeprefix('ziplan.')}\n")
        parts += [_entry(law) for law in laws]
    return "\n".join(parts)


def _entry(law: Law) -> str:
    units = law.units
    value = units.pop("return")
    arguments = ", ".join(f"`{name}` [{unit.symbol}]" for name, unit in units.items())
    use = use_of(law)
    applied = "" if use == "plans" else f" Use: {WORDS[use]}."
    return (
        f"### {law.name} [{value.symbol}]\n\n{law.summary}\n\n"
        f"    {law.name} = {law.expression}\n\n{arguments}. Source: {law.source}.{applied}\n"
    )
