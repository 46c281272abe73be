"""`ziplan fit`: the best plan, its verdict, and the files that run it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ziplan.cli import options
from ziplan.cli.given import Given, given_options
from ziplan.cli.inputs import answer_to
from ziplan.cli.output import apart, deliver, warn, width
from ziplan.errors import BadInput, CannotEmit, ExitCode

if TYPE_CHECKING:
    from ziplan.report.text import Written
    from ziplan.solve.problem import Answer

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
@given_options()
def fit(
    model: options.ModelArgument,
    cluster: options.ClusterArgument,
    given: Given,
    explain: Annotated[bool, typer.Option("--explain", help="Print how every number came about.")] = False,
    json: options.JsonOption = False,
    format: options.FormatOption = options.Format.TEXT,
    output: options.OutputOption = None,
    out: options.OutOption = None,
    trainer: options.TrainerOption = options.Trainer.NONE,
    nvme_path: options.NvmePathOption = None,
    on_tight: Annotated[
        options.Outcome, typer.Option("--on-tight", help="What a tight fit counts as.")
    ] = options.Outcome.PASS,
    on_unknown: Annotated[
        options.Outcome, typer.Option("--on-unknown", help="What an unknown verdict counts as.")
    ] = options.Outcome.FAIL,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit 0 whatever the verdict.")] = False,
) -> int:
    """Plan a training run: does it fit, where does its state live, how long is a step.

    The answer is the best plan that fits, or the one nearest to fitting and what would make it fit.
    """
    apart([output], [model, cluster])
    emitting = _emitting(trainer, nvme_path)
    as_json = json or format is options.Format.JSON
    answer = answer_to(given.on(model, cluster), with_alternatives=as_json or explain)
    files, written = _files(answer, out, emitting)
    if answer.best.verdict == "tight" and on_tight is options.Outcome.PASS:
        from ziplan.report.phrases import how_tight

        warn(how_tight(answer.best))
    _deliver(answer, files, written, as_json, explain, output)
    return ExitCode.OK if exit_zero else exit_code(answer.best.verdict, on_tight, on_unknown)


def exit_code(verdict: str, on_tight: options.Outcome, on_unknown: options.Outcome) -> ExitCode:
    """The code that a verdict exits with."""
    if verdict == "does_not_fit" or (verdict == "tight" and on_tight is options.Outcome.FAIL):
        return ExitCode.DOES_NOT_FIT
    if verdict == "unknown" and on_unknown is options.Outcome.FAIL:
        return ExitCode.UNKNOWN
    return ExitCode.OK


def _emitting(trainer: options.Trainer, nvme_path: str | None) -> dict[str, str]:
    """What the runtime's emitter is told beyond its defaults."""
    if nvme_path is not None:
        _mounted(nvme_path)
    asked = {} if trainer is options.Trainer.NONE else {"trainer": trainer.value}
    return asked if nvme_path is None else {**asked, "nvme_path": nvme_path}


def _mounted(path: str) -> None:
    """Refuse what cannot be the same place on every node: each process starts in a folder of its own."""
    if not path.strip():
        wrong = "is empty"
    elif not path.isprintable():
        wrong = f"has the character {next(c for c in path if not c.isprintable())!a}"
    elif not path.startswith("/"):
        wrong = f"{path!r:.80} is not an absolute path"
    else:
        return
    raise BadInput.of(f"--nvme-path {wrong}", help="for example --nvme-path /local_nvme")


def _files(answer: Answer, out: Path | None, emitting: dict[str, str]) -> tuple[dict[str, str], Written]:
    """The files that run the plan, and what became of them."""
    from ziplan.cli.folder import PLAN_FILE, digest, has_plan, write_plan
    from ziplan.report.plan_file import plan_yaml
    from ziplan.report.text import Written

    best, problem = answer.best, answer.problem
    if best.verdict == "does_not_fit":
        kept = f"; {out} keeps those of an earlier plan" if out is not None and has_plan(out) else ""
        return {}, Written(why_not=f"a plan that does not fit is not written out{kept}" if out else "")
    try:
        files = dict(problem.runtime.emit(problem.cluster, problem.workload, best.plan, **emitting))
    except CannotEmit as error:
        if out is not None:
            raise
        return {}, Written(why_not=str(error))
    about = f"{problem.workload.model.name} on {problem.cluster.label}, planned by ziplan"
    digests = {name: digest(text.encode()) for name, text in files.items()}
    files[PLAN_FILE] = plan_yaml(best.plan, problem.runtime.NAME, about, digests, problem.workload)
    if out is None:
        return files, Written(names=list(files))
    removed = write_plan(out, files)
    return files, Written(names=list(files), folder=str(out), removed=removed)


def _deliver(
    answer: Answer, files: dict[str, str], written: Written, as_json: bool, explain: bool, output: Path | None
) -> None:
    if as_json:
        from ziplan.report.json import dumps, fit_document

        said = [f"files: {written.why_not}"] if written.why_not else []
        said += (
            [f"files: removed, of an earlier plan: {', '.join(written.removed)}"] if written.removed else []
        )
        deliver(dumps(fit_document(answer, files, said)), output)
        return
    from ziplan.report.text import fit_text

    lines = fit_text(answer, written, width())
    if explain:
        from ziplan.report.derivation import explained
        from ziplan.solve.relief import reliefs

        lines += explained(answer, width(), reliefs(answer.problem, answer.best))
    deliver(lines, output)
