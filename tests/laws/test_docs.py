"""The glossary knows every name, with one unit; the page of laws is fresh."""

import re
from pathlib import Path

from ziplan.report.laws_page import every_law, laws_page

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| `(\w+)` \| (\S+) \| (.+) \|$", re.M)


def _glossary():
    return ROW.findall((DOCS / "names.md").read_text(encoding="utf-8"))


def test_every_name_is_in_the_glossary_with_its_unit():
    known = {name: unit for name, unit, _ in _glossary()}
    wrong = []
    for law in every_law():
        for name, unit in law.units.items():
            word = law.name if name == "return" else name
            if word not in known:
                wrong.append(f"| `{word}` | {unit.symbol} | <what it means> |   (used by {law.module})")
            elif known[word] != unit.symbol:
                wrong.append(f"`{word}`: {unit.symbol} in {law.module}.{law.name}, there {known[word]}")
    assert not wrong, "docs/names.md needs these:\n" + "\n".join(sorted(set(wrong)))


def test_each_name_has_one_meaning():
    names = [name for name, _, _ in _glossary()]
    assert sorted(names) == sorted(set(names))
    assert all(len(meaning.strip()) > 5 for _, _, meaning in _glossary())


def test_the_page_of_laws_is_fresh():
    stale = "docs/laws.md is stale: write ziplan.report.laws_page.laws_page() to it"
    assert (DOCS / "laws.md").read_text(encoding="utf-8") == laws_page(), stale
