"""Writes the generated pages of this folder and the table of residuals; tests fail when one is stale."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from ziplan.report.laws_page import laws_page
from ziplan.report.rules_page import rules_page
from ziplan.report.validate_page import fidelity_page
from ziplan.runtimes.deepspeed.reading.page import configs_page
from ziplan.study.residuals import residuals_module
from ziplan.study.targets import targets_section
from ziplan.study.validate import validation


def cases_page() -> str:
    """Users' cases, which are data of the tests and go through what the command runs."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from check.users_page import cases_page as page

    return page()


def fidelity() -> str:
    """The page of fidelity, with the targets between scores and endings."""
    answer, place = validation(), "## How runs ended"
    before, ending, after = fidelity_page(answer).partition(place)
    return f"{before}{targets_section(answer)}\n{ending}{after}"


RESIDUALS = "../ziplan/estimate/residuals.py"
"""What estimates quote of published runs: other pages are made with it."""

PAGES: dict[str, Callable[[], str]] = {
    "laws.md": laws_page,
    "rules.md": rules_page,
    "configs.md": configs_page,
    RESIDUALS: lambda: residuals_module(validation().scores),
    "cases.md": cases_page,
    "fidelity.md": fidelity,
}
"""File name, from this folder, to the function that makes its text."""


def _write(name: str, text: str) -> bool:
    """Write a page; whether it differs from what was there."""
    path = Path(__file__).parent / name
    changed = path.read_text(encoding="utf-8") != text if path.exists() else True
    path.write_text(text, encoding="utf-8")
    return changed


if __name__ == "__main__":
    import shown  # beside this file; of no use to those who only ask for a page above

    if _write(RESIDUALS, PAGES[RESIDUALS]()):
        # The table that is imported is the old one: begin again with the new.
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - this very script
    for name, text in PAGES.items():
        _write(name, text())
    for name in shown.PAGES:
        _write(name, shown.shown(name))
