"""The article's worked example, figure by figure, through the laws that plan everything else.

Each figure keeps what the article prints beside the exact value. The article uses two counts
of parameters: 1e12 for compute, 12 d_model^2 in each of 128 layers for layer bytes.
"""

from __future__ import annotations

from typing import Any

from ziplan.study.article import beyond, rows
from ziplan.study.article.book import Book, Figure, Inputs, given_inputs

__all__ = ["Figure", "Inputs", "as_json", "figures", "given_inputs"]

CHAPTERS = (
    rows.bars,
    rows.tests,
    rows.partitioning,
    rows.prefetch_depths,
    rows.tiles,
    rows.size_ceilings,
    rows.buying_gpus,
    rows.pitfalls,
    beyond.interconnect,
    beyond.gradients,
    beyond.optimizer_pass,
    beyond.sweeps,
    beyond.bounds,
)
"""Each enters its figures; a later one may build on an earlier one's."""


def figures(inputs: Inputs | None = None) -> list[Figure]:
    """Every figure of the article in its order, then what the article leaves out."""
    book = Book()
    given = inputs or given_inputs()
    for chapter in CHAPTERS:
        chapter(book, given)
    rows = sorted((f for f in book.figures.values() if f.in_article), key=lambda f: int(f.key))
    return rows + [figure for figure in book.figures.values() if not figure.in_article]


def as_json(inputs: Inputs | None = None) -> dict[str, Any]:
    """The figures as a `ziplan.article/1` document: values by row, and the notes on them."""
    every = figures(inputs)
    return {
        "schema": "ziplan.article/1",
        "figures": {figure.key: figure.value for figure in every if figure.in_article},
        "units": {figure.key: figure.unit for figure in every if figure.in_article},
        "left_out": {figure.key: figure.value for figure in every if not figure.in_article},
        "notes": {figure.key: figure.note for figure in every if figure.note},
    }
