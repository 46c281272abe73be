"""A report's dossier: every question that it answers, asked of the solver, the checker, the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ziplan.check.run import Checked
from ziplan.errors import BadInput
from ziplan.estimate import Estimate
from ziplan.report.dossier import Dossier
from ziplan.report.margin_map import MarginMap
from ziplan.report.simulation import Told
from ziplan.solve import Answer, Problem, solve
from ziplan.solve.relief import reliefs
from ziplan.study.margin_map import margin_map
from ziplan.study.sweep import Pose


class Asked(NamedTuple):
    """What a report is made of: the judgement of a plan or why there is none, and how to ask again.

    `config` is the name of the config that was judged, empty where the plan is the solver's.
    """

    checked: Checked | None
    not_checked: str
    pose: Pose
    command: str
    inputs: Mapping[str, str]
    config: str = ""


def dossier(answer: Answer, asked: Asked) -> Dossier:
    """Everything that a report tells of a config, or of the answer's best plan."""
    told, best = answer.best, answer.best
    if asked.config and asked.checked is not None and asked.checked.case.estimate is not None:
        told = asked.checked.case.estimate
    absent = {} if asked.checked is not None else {"checked": asked.not_checked}
    played = _played(answer.problem, told, asked, absent)
    margins = _margins(answer, asked.pose, absent)
    return Dossier(
        answer=answer,
        estimate=told,
        checked=asked.checked,
        played=played,
        margins=margins,
        reliefs=reliefs(answer.problem, best),
        command=asked.command,
        inputs=asked.inputs,
        config=asked.config,
        absent=absent,
    )


def best_for(checked: Checked, problem: Problem) -> Answer:
    """The best plan for the batch that a config trains, or for `problem` where that cannot be planned."""
    same = checked.case.problem
    if same is not None:
        try:
            return solve(same)
        except BadInput:
            pass
    return solve(problem)


def _played(problem: Problem, told: Estimate, asked: Asked, absent: dict[str, str]) -> Told | None:
    """The step of the plan that is told of, played; else why it is not, under "played"."""
    from ziplan.simulate.engine import Stuck
    from ziplan.simulate.step import simulate

    if told.workload.companions:
        absent["played"] = "a step of several models in one job cannot be played yet"
        return None
    case = asked.checked.case if asked.checked is not None else None
    runtime = case.runtime if case is not None and case.estimate is told else problem.runtime
    try:
        simulation = simulate(told.cluster, told.workload, runtime, told.plan)
    except Stuck as error:
        absent["played"] = f"the step gets stuck: {error}"
        return None
    if simulation.unknown:
        absent["played"] = f"the time of a step is unknown without {' and '.join(simulation.unknown)}"
        return None
    return Told(simulation, told)


def _margins(answer: Answer, pose: Pose, absent: dict[str, str]) -> MarginMap | None:
    """The map of the tier that is hidden least; else why there is none, under "margins"."""
    try:
        return margin_map(pose, answer.problem, answer.best)
    except BadInput as error:
        absent["margins"] = error.problems[0].message.removeprefix("--map: ")
        return None
