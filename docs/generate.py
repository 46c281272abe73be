"""Writes the generated pages of this folder; tests fail when one is stale."""

from pathlib import Path

from ziplan.report.laws_page import laws_page

PAGES = {"laws.md": laws_page}
"""File name to the function that makes its text."""

if __name__ == "__main__":
    for name, text in PAGES.items():
        Path(__file__).with_name(name).write_text(text(), encoding="utf-8")
