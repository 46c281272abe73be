"""A few clusters side by side, each solved as `fit` solves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from ziplan.errors import BadInput
from ziplan.estimate import Estimate
from ziplan.laws.efficiency import step_cost
from ziplan.laws.law import Derivation
from ziplan.report.comparison import Budget, Comparison, Option
from ziplan.report.figures import HOUR, placement_of
from ziplan.report.sweep import Outcome, outcome_of
from ziplan.solve import Answer, Problem, solve
from ziplan.solve.relief import reliefs
from ziplan.study.sweep import named


class Asked(NamedTuple):
    """An option before it is solved: its name, what it changes, and its problem."""

    name: str
    changes: Mapping[str, str]
    problem: Problem


def compared(asked: Sequence[Asked], tokens: float) -> Comparison:
    """Each option's answer; BadInput where every one is refused."""
    refusals: list[BadInput] = []
    options = tuple(_option(each, tokens, refusals) for each in asked)
    if len(refusals) == len(options):
        raise BadInput(*(problem for refusal in refusals for problem in refusal.problems))
    usable = [place for place, option in enumerate(options) if option.usable]
    budgets = {place: budget for place in usable if (budget := options[place].budget)}
    priced = bool(budgets) and all(budget.dollars is not None for budget in budgets.values())
    return Comparison(
        model=asked[0].problem.workload.model.name,
        tokens=tokens,
        options=options,
        fastest=min(budgets, key=lambda place: budgets[place].time, default=None),
        cheapest=min(budgets, key=lambda place: _paid(budgets[place], priced), default=None),
        priced=priced,
    )


def _paid(budget: Budget, priced: bool) -> float:
    return budget.dollars if priced and budget.dollars is not None else budget.gpu_time


def _option(asked: Asked, tokens: float, refusals: list[BadInput]) -> Option:
    try:
        answer = solve(asked.problem, alternatives=0)
    except BadInput as error:
        refusals.append(error)
        reasons = tuple(dict.fromkeys(problem.message for problem in error.problems))
        return Option(asked.name, asked.changes, refused=reasons)
    best = answer.best
    outcome = outcome_of(best, answer.binding, named(answer.problem.runtime))
    return Option(
        name=asked.name,
        changes=asked.changes,
        outcome=outcome,
        budget=_budget(outcome, tokens),
        baseline=answer.baseline,
        plain=_plain(answer, outcome, tokens),
        offloads=_off_gpu(best),
        reliefs=reliefs(answer.problem, best),
        fixes=answer.changes,
        price=best.cluster.price,
    )


def _off_gpu(best: Estimate) -> bool:
    """Whether a plan keeps anything outside GPU memory."""
    gpu = best.cluster.node.gpu_tier
    return any(tier != gpu for parts in placement_of(best.plan).values() for tier in parts)


def _budget(outcome: Outcome, tokens: float) -> Budget | None:
    """What so many tokens take; None where a token's time is unknown or nothing fits."""
    if outcome.verdict not in ("fits", "tight") or not isfinite(outcome.time_per_token):
        return None
    dollars = outcome.dollars_per_token
    return Budget(
        tokens * outcome.time_per_token,
        tokens * outcome.gpu_time_per_token,
        None if dollars is None else tokens * dollars,
    )


def _plain(answer: Answer, outcome: Outcome, tokens: float) -> Budget | None:
    """The same on the GPUs that plain stage 3 needs, at the same price of a node, of which all GPUs work."""
    base = answer.baseline
    if base.step_time is None or base.step_gpus is None or not isfinite(base.step_time):
        return None
    time = tokens * base.step_time / outcome.tokens_per_step
    cluster = answer.best.cluster
    dollars = None
    if cluster.price is not None:
        dollars = Derivation(record=False).apply(
            step_cost,
            node_hour_price=cluster.price.per_node_hour_usd,
            node_count=float(-(-base.step_gpus // cluster.node.gpus_per_node)),
            step_time=time,
            hour_length=HOUR,
        )
    return Budget(time, time * base.step_gpus, dollars)
