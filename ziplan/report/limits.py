"""The ceilings as text."""

from __future__ import annotations

from collections.abc import Iterator

from ziplan.estimate import Estimate, Limits
from ziplan.report.figures import tokens_per_rank
from ziplan.report.lines import Line, line, wrapped
from ziplan.report.phrases import gpus_words, job_words
from ziplan.report.table import Column, table
from ziplan.solve.problem import Answer
from ziplan.units import figure, show, show_duration


def limits_text(answer: Answer, width: int) -> list[Line]:
    """The three ceilings beside the model, how long training takes, and what each of them means."""
    best = answer.best
    model, ceilings = best.workload.model, best.limits
    runtime = answer.problem.runtime
    where = f"{best.cluster.label} ({gpus_words(best.gpus, answer.gpus_there)})"
    what = f"{job_words(best.workload)} on {where}, {runtime.NAME}"
    notes = [part for note in model.notes for part in wrapped(f"note: {note}", width)]
    head = [*wrapped(f"{what} {runtime.VERSION}".rstrip(), width), *notes, line()]
    if ceilings is None:
        needs = ", ".join(best.unknown) or "an input that nobody stated"
        return [*head, *wrapped(f"ceilings unknown: {needs}", width)]
    params, d_model = show(model.params, "param"), f"{model.d_model:,}"
    rows = [
        ("parameters, by capacity", show(ceilings.max_params_by_capacity, "param"), params),
        ("width d_model, by memory", show(ceilings.max_d_model_untiled, "1"), d_model),
        ("  with tiled operators", show(ceilings.max_d_model_by_width, "1"), d_model),
        ("parameters, by compute", show(ceilings.max_params_by_compute, "param"), params),
        ("training time", "-", show_duration(ceilings.training_time)),
    ]
    columns = [
        Column("ceiling", [row[0] for row in rows], right=False),
        Column("limit", [row[1] for row in rows]),
        Column("this model", [row[2] for row in rows]),
    ]
    meanings = [part for text in _meanings(answer, ceilings) for part in wrapped(text, width)]
    return [*head, *table(columns, width), line(), *meanings]


def _meanings(answer: Answer, ceilings: Limits) -> Iterator[str]:
    """What each ceiling is the ceiling of."""
    best = answer.best
    model = best.workload.model
    tokens, tiles = tokens_per_rank(best), ceilings.greatest_tile_count
    beside = ", beside the other models of the job" if best.workload.companions else ""
    yield f"capacity: parameters, gradients and optimizer state fill {_filled(best, ceilings)}{beside}"
    yield (
        f"width: the widest operator of a layer and what goes in and out of it for {tokens:,.0f} tokens fill "
        f"a GPU; tiled into {show(tiles, '1')} pieces at most, which is a change of the model's code"
    )
    budget = f"{figure(ceilings.tokens_per_param)} tokens per parameter"
    dense = "" if model.active_params == model.params else ", all of them active in every token"
    yield f"compute: {budget}{dense}, within {show_duration(ceilings.time_budget, 3)} at the GPUs' rate"
    sparse = dense and f", {show(model.active_params, 'param')} of them active in a token,"
    yield f"training time: {budget}{sparse} at the rate that this plan is predicted to reach"


def _filled(best: Estimate, ceilings: Limits) -> str:
    """What states fill: the tier of capacity, which is the outermost that the runtime can keep them in."""
    name = ceilings.capacity_tier
    return f"{name} of all {'GPUs' if name == best.cluster.node.gpu_tier else 'nodes'}"
