"""The judgement of a config in the forms that other programs read: one function a form."""

from __future__ import annotations

from collections.abc import Callable

from ziplan.check.run import Checked
from ziplan.report.check_json import check_document
from ziplan.report.check_text import check_text
from ziplan.report.json import dumps
from ziplan.report.lines import plain

FILE_WIDTH = 100


def text(checked: Checked) -> str:
    """As on a terminal, without colour."""
    return plain(check_text(checked, FILE_WIDTH))


def json(checked: Checked) -> str:
    """`ziplan.check/1`."""
    return dumps(check_document(checked))


FORMATS: dict[str, Callable[[Checked], str]] = {"text": text, "json": json}
"""Name of a form to what writes it."""


def rendered(checked: Checked, form: str) -> str:
    """The judgement in the form called `form`."""
    return FORMATS[form](checked)
