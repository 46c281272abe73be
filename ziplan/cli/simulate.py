"""`ziplan simulate`: one training step played event by event, and what it waits for."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ziplan.cli import options
from ziplan.cli.given import OF_A_CHOICE, Given, given_options
from ziplan.cli.inputs import Request, answer_to
from ziplan.cli.output import apart, deliver, save, warn, width
from ziplan.errors import BadInput, ExitCode
from ziplan.units import figure

if TYPE_CHECKING:
    from ziplan.files import Document
    from ziplan.plan import Plan
    from ziplan.report.simulation import Told
    from ziplan.solve.problem import Problem

app = typer.Typer(add_completion=False, rich_markup_mode=None)


SETTLED_BY_A_PLAN = (
    "global_batch_size",
    "micro_batch_size",
    "accumulation_steps",
    "activation_checkpointing",
)
"""Training settings that a plan.yaml holds."""


class Fetch(str, Enum):
    """Who reads a layer."""

    STRIPED = "striped"
    OWNER = "owner"


def _names() -> list[str]:
    from ziplan.cli.inputs import machine_names, model_names

    return [*model_names(), *machine_names()]


Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="[PLAN] MODEL CLUSTER",
        help="A plan.yaml as `fit --out` writes it (the best plan unless given), a model, a cluster.",
        autocompletion=options.completer(_names),
        show_default=False,
    ),
]
SlowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--slow",
        metavar="PART=FACTOR",
        help="One node with a slower part: drive=0.5, node=0.8, gpu, cpu, a tier or a link. Repeatable.",
        show_default=False,
    ),
]
FetchOption = Annotated[
    Fetch,
    typer.Option(
        "--fetch",
        help="With --runtime ideal: each rank reads its slice of a layer, or its owner all of it.",
        show_default=False,
    ),
]
TurnOption = Annotated[
    bool,
    typer.Option("--stop-at-turn", help="With --runtime ideal: backward's fetches wait for forward's end."),
]
TraceOption = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        parser=options.a_path,
        help="Write a Chrome trace to FILE, to be opened in Perfetto.",
        show_default=False,
    ),
]


@app.command()
@given_options("runtime", *OF_A_CHOICE)
def simulate(
    inputs: Inputs,
    given: Given,
    runtime: options.RuntimeOption = "",
    slow: SlowOption = None,
    fetch: FetchOption = Fetch.STRIPED,
    stop_at_turn: TurnOption = False,
    trace: TraceOption = None,
    json: options.JsonOption = False,
    format: options.FormatOption = options.Format.TEXT,
    output: options.OutputOption = None,
) -> int:
    """Play one training step on the machine's links: what waits for what, and how busy each link is."""
    from ziplan.cli.plan_inputs import runtime_of
    from ziplan.files import read

    plan_file, model, cluster = _split(inputs)
    _refuse_beside_plan(plan_file, given)
    apart([output, trace], inputs)
    slowed = _slowed(slow or ())
    playing: dict[str, Any] = {"owner_broadcast": True} if fetch is Fetch.OWNER else {}
    playing |= {"over_the_turn": False} if stop_at_turn else {}
    document = read(plan_file) if plan_file is not None else None
    made_for = runtime_of(document) if document is not None else ""
    request = given._replace(runtime=runtime or made_for or given.runtime).on(model, cluster)
    problem, plan = _planned(document, request)
    told = _told(problem, plan, slowed, playing)
    if trace is not None:
        _write_trace(told, trace)
    _deliver(told, json or format is options.Format.JSON, output)
    return ExitCode.UNKNOWN if told.simulation.unknown else ExitCode.OK


def _split(inputs: list[str]) -> tuple[Path | None, str, str]:
    if len(inputs) not in (2, 3):
        raise BadInput.of(
            f"expected [PLAN] MODEL CLUSTER, not {len(inputs)} argument{'s' * (len(inputs) != 1)}",
            help="for example `ziplan simulate llama-3.1-8b dgx-a100-80g --sequence-length 4096`",
        )
    *plan, model, cluster = inputs
    return (Path(plan[0]) if plan else None), model, cluster


def _refuse_beside_plan(plan_file: Path | None, given: Given) -> None:
    """What a plan decides cannot be asked for beside it."""
    settled = [
        f"--{name.removeprefix('activation_').replace('_', '-')}"
        for name in SETTLED_BY_A_PLAN
        if name in given.training
    ]
    if plan_file is not None and settled:
        raise BadInput.of(
            f"{', '.join(settled)} beside a plan, which has settled that",
            help=f"change it in {plan_file}, or leave the plan out to have one made",
        )


def _planned(document: Document | None, request: Request) -> tuple[Problem, Plan]:
    """The problem, and the plan that is given or the best one there is."""
    if document is None:
        problem, plan = _best(request)
    else:
        from ziplan.cli.plan_inputs import planned

        # A runtime's own config has a reader of its own; a plan is what both end in.
        problem, plan = planned(document, request)
        gpus, there = int(plan.gpus), problem.cluster.gpu_count
        if gpus < there:
            warn(f"{document.name} trains on {gpus:,} of {there:,} GPUs: the others are idle")
    if problem.workload.companions:
        raise BadInput.of(
            "a step of several models in one job cannot be played yet", help="simulate one model"
        )
    return problem, plan


def _best(request: Request) -> tuple[Problem, Plan]:
    """The problem and its best plan, which must fit."""
    answer = answer_to(request, with_alternatives=False)
    if answer.best.verdict == "does_not_fit":
        raise BadInput.of(
            f"no plan of {answer.problem.workload.model.name} fits {answer.problem.cluster.label}",
            help="`ziplan fit` says what is missing; a plan.yaml is played whether it fits or not",
        )
    return answer.problem, answer.best.plan


def _slowed(asked: list[str] | tuple[str, ...]) -> dict[str, float]:
    """Parts and factors of --slow."""
    parts: dict[str, float] = {}
    for text in asked:
        part, equals, factor = text.partition("=")
        try:
            value = float(factor) if equals else 0.0
        except ValueError:
            value = 0.0
        if not 0 < value <= 1:
            raise BadInput.of(
                f"--slow {text!r:.60} is not PART=FACTOR with a factor above 0 and at most 1",
                help="for example --slow drive=0.5: one drive of one node at half its rate",
            )
        known = parts.setdefault(part.strip(), value)
        if known != value:
            raise BadInput.of(f"--slow {part.strip()} is given twice, {figure(known)} and {figure(value)}")
    return parts


def _told(problem: Problem, plan: Plan, slowed: dict[str, float], playing: dict[str, Any]) -> Told:
    """The step played, what the estimate says of it, and the same with nothing slow."""
    from ziplan.estimate import estimate
    from ziplan.files import nearest
    from ziplan.report.simulation import Told
    from ziplan.simulate.engine import Stuck
    from ziplan.simulate.links import slowable
    from ziplan.simulate.step import simulate as played

    known = slowable(problem.cluster)
    for part in slowed:
        if part not in known:
            raise BadInput.of(
                f"--slow {part!r:.40}: no such part in {problem.cluster.label}",
                help=nearest(part, known) or f"there are {', '.join(known)}",
            )
    run = problem.cluster, problem.workload, problem.runtime, plan
    try:
        simulation = played(*run, slowed, **playing)
    except Stuck as error:
        raise BadInput.of(
            f"the step gets stuck: {error}",
            help="raise param_buffer_count or optimizer_buffer_count in plan.yaml, or lower prefetch_depth",
        ) from error
    return Told(simulation, estimate(*run), played(*run, **playing) if slowed else None)


def _write_trace(told: Told, path: Path) -> None:
    """The trace in one line; nothing is written of a step that could not be played."""
    if told.simulation.unknown:
        warn(f"{path} is not written: the step has no known time")
        return
    import json

    from ziplan.report.simulation_trace import chrome_trace

    save(path, json.dumps(chrome_trace(told.simulation), allow_nan=False) + "\n")


def _deliver(told: Told, as_json: bool, output: Path | None) -> None:
    if as_json:
        from ziplan.report.json import dumps
        from ziplan.report.simulation_json import simulate_document

        deliver(dumps(simulate_document(told)), output)
        return
    from ziplan.report.simulation import simulation_text

    lines = simulation_text(told, width())
    deliver(lines, output)
