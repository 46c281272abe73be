"""`ziplan check`: judge a config that somebody already has."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ziplan.cli import options
from ziplan.cli.given import SETTLED_BY_A_CONFIG, Given, given_options
from ziplan.cli.options import CheckFormat
from ziplan.cli.output import apart, save, show, width, write
from ziplan.errors import BadInput, ExitCode
from ziplan.units import figure

if TYPE_CHECKING:
    from ziplan.check.case import Case
    from ziplan.check.run import Checked
    from ziplan.cli.check_inputs import Asked

app = typer.Typer(add_completion=False, rich_markup_mode=None)


class Least(str, Enum):
    """The mildest finding that fails the check."""

    ERROR = "error"
    WARNING = "warning"


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, show_default=False, **more)


@app.command()
@given_options(*SETTLED_BY_A_CONFIG)
def check(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG",
            parser=options.a_path,
            help="A DeepSpeed config, an accelerate config, the Trainer's arguments, or a plan.yaml.",
        ),
    ],
    model: options.ModelArgument,
    cluster: options.ClusterArgument,
    given: Given,
    trainer: Annotated[
        options.Trainer | None,
        _option("--trainer", help="Who reads a DeepSpeed config. Default: the Trainer where sizes are auto."),
    ] = None,
    launch: Annotated[
        Path | None,
        _option(
            "--launch",
            metavar="FILE",
            parser=options.a_path,
            help="How the run is started. Default: launch.sh beside CONFIG.",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        _option(
            "--ignore",
            metavar="CODE[@PATH]",
            help="A finding that is lived with, of one key or of any. Repeatable.",
        ),
    ] = None,
    gates: Annotated[
        Path | None,
        _option("--gates", metavar="FILE", parser=options.a_path, help="Limits on time, memory and wear."),
    ] = None,
    baseline: Annotated[
        Path | None,
        _option(
            "--baseline",
            metavar="CONFIG",
            parser=options.a_path,
            help="A config that this one must not be slower than.",
        ),
    ] = None,
    max_regress: Annotated[
        str | None, _option("--max-regress", metavar="PERCENT", help="How much slower, as 3%. Default: 0%.")
    ] = None,
    fail_on: Annotated[
        Least, _option("--fail-on", help="The mildest finding that fails. Default: error.")
    ] = Least.ERROR,
    on_tight: Annotated[
        options.Outcome, _option("--on-tight", help="What a tight fit counts as. Default: pass.")
    ] = options.Outcome.PASS,
    on_unknown: Annotated[
        options.Outcome, _option("--on-unknown", help="What an unknown verdict counts as. Default: fail.")
    ] = options.Outcome.FAIL,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit 0 whatever is found.")] = False,
    json: options.JsonOption = False,
    format: Annotated[CheckFormat, options.format_option(CheckFormat)] = CheckFormat.TEXT,
    output: Annotated[
        list[str] | None,
        _option("--output", "-o", metavar="[FORMAT=]FILE", help="Write a form to a file. Repeatable."),
    ] = None,
) -> int:
    """Judge a config: will it run out of memory, will it stall, what in it is ignored or wrong."""
    from ziplan.cli.check_inputs import Asked

    asked = Asked(given.on(model, cluster), trainer.value if trainer else None, launch)
    chosen = CheckFormat.JSON if json else format
    files = [_destination(text, chosen) for text in output or ()]
    apart([path for _, path in files], [config, model, cluster, launch, gates, baseline])
    checked = _checked(config, asked, ignore or [], gates, baseline, max_regress)
    _deliver(checked, chosen, files)
    code = exit_code(checked, fail_on, on_tight, on_unknown)
    return ExitCode.OK if exit_zero else code


def _checked(
    config: Path,
    asked: Asked,
    ignore: list[str],
    gates: Path | None,
    baseline: Path | None,
    max_regress: str | None,
) -> Checked:
    """The case with what the project asks of it, judged."""
    from ziplan.check.comments import in_comments
    from ziplan.check.policy import from_flags
    from ziplan.check.run import check as judged
    from ziplan.cli.check_inputs import case_of, gates_in, policy_beside

    if max_regress is not None and baseline is None:
        raise BadInput.of("--max-regress without a baseline", help="add --baseline plan.yaml")
    allowed = _percent(max_regress)
    policy, flags = policy_beside(config), from_flags(ignore)
    limits = gates_in(gates) if gates is not None else policy.gates if policy is not None else None
    case = case_of(config, asked)
    before: Case | None = case_of(baseline, asked) if baseline is not None else None
    case = replace(case, gates=limits, baseline=before, max_regress=allowed)
    commented = in_comments(document for document, _ in case.documents)
    return judged(case, (*(policy.ignores if policy is not None else ()), *flags, *commented))


def _percent(text: str | None) -> float:
    """A share that is written as "3%" or "0.03"."""
    if text is None:
        return 0.0
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*(%?)\s*", text)
    if match is None:
        raise BadInput.of(f"--max-regress {text!r:.40} is not a share", help="for example --max-regress 3%")
    share = float(match[1]) / (100 if match[2] else 1)
    if not match[2] and share >= 1:
        raise BadInput.of(
            f"--max-regress {text!r:.40} would allow {figure(share + 1)} times the time",
            help=f"for example --max-regress {match[1]}%, or {figure(100 * share)}% where that is meant",
        )
    return share


def exit_code(
    checked: Checked, fail_on: Least, on_tight: options.Outcome, on_unknown: options.Outcome
) -> ExitCode:
    """The code that a judgement exits with; a failure comes before what is not known."""
    verdict = checked.verdict
    tight = verdict == "tight" and on_tight is options.Outcome.FAIL
    if verdict == "does_not_fit" or tight or checked.fails_on(fail_on.value):
        return ExitCode.DOES_NOT_FIT
    if verdict == "unknown" and on_unknown is options.Outcome.FAIL:
        return ExitCode.UNKNOWN
    return ExitCode.OK


def _destination(text: str, otherwise: CheckFormat) -> tuple[CheckFormat, Path]:
    """The form and the file of `-o`: "sarif=out.sarif", or a file in the form of --format."""
    name, equals, path = text.partition("=")
    known = {each.value: each for each in CheckFormat}
    if equals and name in known:
        return known[name], options.a_path(path)
    return otherwise, options.a_path(text)


def _deliver(checked: Checked, chosen: CheckFormat, files: list[tuple[CheckFormat, Path]]) -> None:
    """Write each form to its file, and the chosen one to stdout unless it has a file."""
    for form, path in files:
        save(path, _rendered(checked, form))
    if any(form is chosen for form, _ in files):
        return
    if chosen is CheckFormat.TEXT:
        from ziplan.report.check_text import check_text

        show(check_text(checked, width()))
    else:
        write(_rendered(checked, chosen))


def _rendered(checked: Checked, form: CheckFormat) -> str:
    from ziplan.report.check_formats import rendered

    return rendered(checked, form.value)
