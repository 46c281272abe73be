"""From the words of `ziplan report` to a dossier: the plan or the config, judged, and how to ask again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ziplan.check.run import Checked, check
from ziplan.cli.check_inputs import Asked as CheckAsked
from ziplan.cli.check_inputs import case_of, of_plan
from ziplan.cli.given import Given
from ziplan.cli.inputs import Request, answer_to, problem_of
from ziplan.cli.varied import posed
from ziplan.errors import BadInput, CannotEmit
from ziplan.files import read_text
from ziplan.report.dossier import Dossier
from ziplan.report.plan_file import plan_yaml
from ziplan.solve.problem import Answer
from ziplan.study.report import Asked, best_for, dossier

if TYPE_CHECKING:
    from ziplan.runtimes.deepspeed.reading.read import Trainer

PLAN = "plan.yaml"
FLAGS = {
    "sequence_length": "--sequence-length",
    "global_batch_size": "--global-batch-size",
    "micro_batch_size": "--micro-batch-size",
    "accumulation_steps": "--accumulation-steps",
    "precision": "--precision",
    "activation_checkpointing": "--checkpointing",
    "attention": "--attention",
}
"""Training settings and the options that state them."""


def gathered(model: str, cluster: str, given: Given, config: Path | None, trainer: Trainer | None) -> Dossier:
    """The dossier of a config, or of the best plan."""
    request = given.on(model, cluster)
    if config is None:
        answer = answer_to(request)
        checked, why_not = _checked_plan(answer, request)
        files = _emitted(answer)
    else:
        _refuse_what_is_settled(given)
        checked, why_not = check(case_of(config, CheckAsked(request, trainer))), ""
        answer, files = best_for(checked, problem_of(request)), {}
    named = (model, cluster, str(config) if config else "", request.calibration)
    paths = [Path(name) for name in named if name]
    asked = Asked(
        checked=checked,
        not_checked=why_not,
        pose=partial(posed, request),
        command=shlex.join(command_of(request, config, trainer)),
        inputs={**_texts(paths), **files},
        config=str(config) if config else "",
    )
    return dossier(answer, asked)


def _refuse_what_is_settled(given: Given) -> None:
    """What a config says itself cannot be asked for beside it."""
    plain = Given()
    asked = {
        "--runtime": given.runtime != plain.runtime,
        "--global-batch-size": "global_batch_size" in given.training,
        "--objective": given.objective != plain.objective,
        "--allow-tiling": given.allow_tiling != plain.allow_tiling,
    }
    given_too = [name for name, is_asked in asked.items() if is_asked]
    if given_too:
        raise BadInput.of(
            f"{', '.join(given_too)} beside a config, which settles that",
            help="leave CONFIG out to have a plan made",
        )


def _checked_plan(answer: Answer, request: Request) -> tuple[Checked | None, str]:
    """The best plan judged as its plan.yaml would be, or why it is not."""
    best, runtime = answer.best, answer.problem.runtime
    text = plan_yaml(best.plan, runtime.NAME, "the best plan", workload=best.workload)
    # The plan settles these; the solver may have taken fewer nodes than were named.
    settled = {"global_batch_size", "micro_batch_size", "accumulation_steps", "activation_checkpointing"}
    training = {key: value for key, value in request.training.items() if key not in settled}
    settings = (*request.settings, f"nodes={best.cluster.nodes}")
    try:
        case = of_plan(read_text(text, PLAN), request._replace(training=training, settings=settings))
    except BadInput as error:
        return None, error.problems[0].message
    return check(replace(case, cluster=best.cluster, workload=best.workload)), ""


def _emitted(answer: Answer) -> dict[str, str]:
    """The files that run the best plan, where it can be run."""
    best, runtime = answer.best, answer.problem.runtime
    if best.verdict == "does_not_fit":
        return {}
    about = f"{best.workload.model.name} on {best.cluster.label}, planned by ziplan"
    plan = {PLAN: plan_yaml(best.plan, runtime.NAME, about, workload=best.workload)}
    try:
        return {**runtime.emit(best.cluster, best.workload, best.plan), **plan}
    except CannotEmit:
        return plan


def _texts(paths: list[Path]) -> dict[str, str]:
    """Name to text of the files among the arguments; of a model's folder its config.json."""
    texts = {}
    for path in paths:
        file = path / "config.json" if path.is_dir() else path
        if file.is_file():
            texts[str(file)] = file.read_text(encoding="utf-8", errors="replace")
    return texts


def command_of(request: Request, config: Path | None, trainer: str | None) -> list[str]:
    """The words that ask for the same report."""
    words = ["ziplan", "report", request.model, request.cluster, *([str(config)] if config else [])]
    return [*words, *_flags(request), *(["--trainer", trainer] if trainer else [])]


def _flags(request: Request) -> Iterator[str]:
    training, plain = request.training, Request(request.model, request.cluster)
    optimizer, trainable = training.get("optimizer"), training.get("trainable")
    given: list[tuple[str, str | None]] = [
        *((flag, _word(training.get(key))) for key, flag in FLAGS.items()),
        ("--optimizer", optimizer["kind"] if optimizer else None),
        ("--lora-rank", _word(trainable["lora_rank"]) if trainable else None),
        ("--lora-targets", ",".join(trainable["targets"]) if trainable else None),
        *(("--set", setting) for setting in request.settings),
        *(("--companion", companion) for companion in request.companions),
        ("--calibration", request.calibration or None),
        ("--runtime", request.runtime if request.runtime != plain.runtime else None),
        ("--objective", request.objective if request.objective != plain.objective else None),
    ]
    for flag, word in given:
        if word is not None:
            yield from (flag, word)
    if request.allow_tiling:
        yield "--allow-tiling"


def _word(value: object) -> str | None:
    return None if value is None else str(value)
