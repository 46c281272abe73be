"""The ceilings as text."""

from __future__ import annotations

from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.table import Column, table
from ziplan.solve.problem import Answer
from ziplan.units import show, show_duration


def limits_text(answer: Answer, width: int) -> list[Line]:
    """The three ceilings beside the model, and how long training takes."""
    best = answer.best
    model, ceilings = best.workload.model, best.limits
    head = wrapped(f"{model.name} on {best.cluster.label}, {answer.problem.runtime.NAME}", width)
    if ceilings is None:
        needs = ", ".join(best.unknown) or "an input that nobody stated"
        return [*head, *wrapped(f"ceilings unknown: {needs}", width)]
    budget = (
        f"{ceilings.tokens_per_param:g} tokens per parameter within {show_duration(ceilings.time_budget, 3)}"
    )
    tiles = f"in at most {show(ceilings.greatest_tile_count, '1')} tiles"
    rows = [
        (
            "parameters, by capacity",
            show(ceilings.max_params_by_capacity, "param"),
            show(model.params, "param"),
            "",
        ),
        ("width d_model, by memory", show(ceilings.max_d_model_by_width, "1"), f"{model.d_model:,}", tiles),
        (
            "parameters, by compute",
            show(ceilings.max_params_by_compute, "param"),
            show(model.params, "param"),
            budget,
        ),
        (
            "training time",
            "-",
            show_duration(ceilings.training_time),
            f"{ceilings.tokens_per_param:g} tokens per parameter",
        ),
    ]
    columns = [
        Column("ceiling", [row[0] for row in rows], right=False),
        Column("limit", [row[1] for row in rows]),
        Column("this model", [Span(row[2]) for row in rows]),
        Column("", [row[3] for row in rows], False, 1),
    ]
    return [*head, line(), *table(columns, width)]
