"""The glossary knows every name, with one unit; the page of laws is fresh."""

import re
from pathlib import Path

from cli.runs import ziplan
from laws.uses import users

from ziplan.report.law_uses import WORDS, use_of
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


def test_what_applies_a_law_is_what_is_said_of_it():
    applied = users()
    for law in every_law():
        modules = applied.get(law.name, set())
        of_plans = {module for module in modules if not module.startswith("ziplan.study.article")}
        assert use_of(law) == ("plans" if of_plans else "article" if modules else "background"), law.name


def test_a_law_says_whether_plans_are_worked_out_with_it(capsys):
    listed = ziplan(capsys, "explain", "laws").out
    plans, article, background = (listed.index(words) for words in WORDS.values())
    assert plans < listed.index("\nstriped_fetch_time\n") < article < listed.index("\ntraining_years\n")
    assert plans < listed.index("\nhook_time\n") < article  # a runtime's own
    assert background < listed.index("\nstall_time\n")
    assert "applied to plans" in ziplan(capsys, "explain", "hook_time").out
    assert WORDS["background"] in " ".join(ziplan(capsys, "explain", "stall_time").out.split())


def test_the_page_of_laws_is_fresh():
    stale = "docs/laws.md is stale: write ziplan.report.laws_page.laws_page() to it"
    assert (DOCS / "laws.md").read_text(encoding="utf-8") == laws_page(), stale
