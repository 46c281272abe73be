"""From a plan.yaml and a request to a problem and a plan that suits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ziplan.cli.inputs import Request, problem_of
from ziplan.cli.output import warn
from ziplan.errors import BadInput
from ziplan.errors import Problem as Wrong

if TYPE_CHECKING:
    from ziplan.files import Document
    from ziplan.plan import Plan
    from ziplan.solve.problem import Problem


def runtime_of(document: Document) -> str:
    """The runtime that a plan.yaml says it was made for; empty where it does not say."""
    named = document.data.get("runtime") if isinstance(document.data, dict) else None
    return named if isinstance(named, str) else ""


def planned(document: Document, request: Request) -> tuple[Problem, Plan]:
    """The problem that a request poses and the plan of a file, which must be one for it.

    BadInput where the plan is of another model, for more GPUs than there are, or cannot be run; what
    merely differs is said on stderr.
    """
    from ziplan.report.plan_file import differences, load_plan

    plan, problem = load_plan(document), problem_of(request)
    for warning in problem.cluster.warnings:
        warn(warning)
    differing = differences(document, problem.workload)
    if differing.wrong:
        raise BadInput(*differing.wrong)
    for remark in differing.remarks:
        warn(remark)
    _suited(document, problem, plan)
    return problem, plan


def _suited(document: Document, problem: Problem, plan: Plan) -> None:
    """Refuse a plan for another machine, and one that the runtime cannot run."""
    wrong = [*_more_gpus(document, problem, plan), *_no_such_tiers(document, problem, plan)]
    if not wrong:
        reasons = problem.runtime.refusals(problem.cluster, problem.workload, plan)
        wrong = [
            document.problem(each.path, "ZP001", f"{problem.runtime.NAME} cannot run it: {each}", each.help)
            for each in reasons
        ]
    if wrong:
        raise BadInput(*wrong)


def _more_gpus(document: Document, problem: Problem, plan: Plan) -> list[Wrong]:
    gpus, there = int(plan.gpus), problem.cluster.gpu_count
    if gpus <= there:
        return []
    message = f"dp_degree: the plan is for {gpus:,} GPUs, and {problem.cluster.label} has {there:,}"
    remedy = f"--set nodes={-(-gpus // problem.cluster.node.gpus_per_node)}, or a plan for this cluster"
    return [document.problem(("dp_degree",), "ZP010", message, remedy, key=True)]


def _no_such_tiers(document: Document, problem: Problem, plan: Plan) -> list[Wrong]:
    tiers, label = problem.cluster.node.tiers, problem.cluster.label
    return [
        document.problem(
            ("placement", state, tier),
            "ZP012",
            f"{tier}: {label} has no such tier, it has {', '.join(tiers)}",
            f"write one of {', '.join(tiers)}, or name the cluster that the plan is for",
            key=True,
        )
        for state in ("params", "grads", "optimizer", "checkpoints")
        for tier in getattr(plan.placement, state)
        if tier not in tiers
    ]
