"""A model as text: its size, and its operators."""

from __future__ import annotations

from ziplan.report.lines import Line, Span, line, wrapped
from ziplan.report.table import Column, table
from ziplan.units import show
from ziplan.workload.model import Model


def model_text(model: Model, width: int) -> list[Line]:
    """What the model is, and a row for each operator."""
    fewer = model.active_params != model.params
    active = f" ({show(model.active_params, 'param')} active per token)" if fewer else ""
    about = (
        f"{show(model.params, 'param')}{active}, {model.layer_count} layers, d_model {model.d_model:,}, "
        f"{model.attention_heads} heads ({model.key_value_heads} of keys and values), "
        f"vocabulary {model.vocab_size:,}"
    )
    source = wrapped(f"source: {model.source}", width, keep_words=True) if model.source else []
    operators = model.operators
    columns = [
        Column("operator", [operator.name for operator in operators], right=False),
        Column("kind", [operator.kind for operator in operators], False, 1),
        Column("in", [f"{operator.in_features:,}" for operator in operators]),
        Column("out", [f"{operator.out_features:,}" for operator in operators]),
        Column("params", [f"{operator.params:,}" for operator in operators]),
        Column("count", [f"{operator.count:,}" for operator in operators]),
        Column("", [f"shared with {o.shared_with}" if o.shared_with else "" for o in operators], False, 2),
    ]
    head = line(Span(model.name, "bold"), f" ({model.family})")
    notes = [part for note in model.notes for part in wrapped(f"note: {note}", width)]
    return [head, *wrapped(about, width), *source, *notes, line(), *table(columns, width)]
