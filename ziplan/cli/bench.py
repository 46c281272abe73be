"""`ziplan bench`: what this node really delivers, as a machine file that every command reads."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ziplan.cli import options
from ziplan.cli.bench_files import ExtendsOption, check_output, is_there, save_record, told
from ziplan.cli.bench_import import import_
from ziplan.cli.bench_merge import merge
from ziplan.cli.output import complain, deliver, save, show, warn, width
from ziplan.cli.progress import Told
from ziplan.errors import BadInput, ExitCode

if TYPE_CHECKING:
    from ziplan.bench.benchmark import Options
    from ziplan.bench.record import Record
    from ziplan.bench.runner import Planned, Run

app = typer.Typer(add_completion=False, rich_markup_mode=None)

MOST_RUNS = 100


def _names() -> list[str]:
    from ziplan.bench.benchmark import benchmarks

    return [each.name for each in benchmarks()]


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, show_default=False, **more)


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    listed: Annotated[bool, _option("--list", help="List the benchmarks and measure nothing.")] = False,
    only: Annotated[
        list[str] | None,
        _option(
            "--only",
            metavar="NAME",
            help="Only this benchmark, or those of a pattern ('gpu*'). Repeatable.",
            autocompletion=options.completer(_names),
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        _option(
            "--skip",
            metavar="NAME",
            help="All but this one. Repeatable.",
            autocompletion=options.completer(_names),
        ),
    ] = None,
    quick: Annotated[
        bool, _option("--quick", help="Shorter: under a minute with one drive and no GPU.")
    ] = False,
    budget: Annotated[
        str | None, _option("--budget", metavar="TIME", help="Take no longer than this, e.g. '3 min'.")
    ] = None,
    storage: Annotated[
        list[str] | None,
        _option(
            "--storage",
            metavar="DIR",
            help="Measure the drive below this folder. Repeatable. "
            "Default: this folder, and others on NVMe drives.",
        ),
    ] = None,
    max_write: Annotated[
        str | None,
        _option(
            "--max-write",
            metavar="BYTES",
            help="Write no more than this, all drives together. Default: 256 GiB, with --quick 64 GiB.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, _option("--dry-run", help="Say what would be done, how long and how much written.")
    ] = False,
    json: Annotated[bool, _option("--json", help="Print the record of the run (ziplan.bench/1).")] = False,
    output: Annotated[
        Path | None,
        _option(
            "--output",
            "-o",
            metavar="FILE",
            parser=options.a_path,
            help="Write the machine file, and its record beside it (FILE.bench.json) as it comes.",
        ),
    ] = None,
    extends: ExtendsOption = "",
    repeat: Annotated[
        int, _option("--repeat", min=1, max=MOST_RUNS, metavar="N", help="Measure all N times.")
    ] = 1,
    replay: Annotated[
        Path | None,
        _option(
            "--replay",
            metavar="FILE",
            parser=options.a_path,
            help="Measure nothing: judge the record of an earlier run and write its machine file.",
        ),
    ] = None,
) -> int:
    """Measure what this node delivers: memory, the host's optimizer, drives, GPUs and the ways between."""
    if context.invoked_subcommand is not None:
        return ExitCode.OK
    if listed:
        return _list()
    _check_extends(extends)
    check_output(output, [replay] if replay else [], record=replay is None)
    if replay is not None:
        asked_for = {"--only": only, "--skip": skip, "--storage": storage, "--budget": budget}
        _refuse_beside_replay({**asked_for, "--max-write": max_write, "--quick": quick, "--dry-run": dry_run})
        from ziplan.bench.record import load

        return _tell(load(replay), output, extends, json)
    asked = _options(quick, budget, storage or [], max_write, repeat)
    return _measure(asked, budget, only or [], skip or [], (dry_run, json), output, extends, repeat)


def _list() -> int:
    from ziplan.bench.benchmark import benchmarks
    from ziplan.report.lines import line
    from ziplan.report.table import Column, table

    every = benchmarks()
    names = Column("benchmark", [each.name for each in every], right=False)
    show([*table([names, Column("measures", [each.what for each in every], right=False)], width()), line("")])
    return ExitCode.OK


def _check_extends(machine: str) -> None:
    """A machine that is not there is told before minutes are spent."""
    from ziplan.hardware.profiles import load_node

    if machine:
        load_node(machine)


def _refuse_beside_replay(given: dict[str, object]) -> None:
    """What says how to measure has no meaning where nothing is."""
    for flag, value in given.items():
        if value:
            raise BadInput.of("has no meaning with --replay, which measures nothing", file=flag)


def _options(
    quick: bool, budget: str | None, storage: list[str], max_write: str | None, repeat: int
) -> Options:
    from ziplan.bench.benchmark import MOST_WRITTEN, MOST_WRITTEN_QUICKLY, Options

    _amount(budget, "s", "--budget")
    for folder in storage:
        if not folder.isprintable():
            raise BadInput.of(f"{folder[:200]!a}: a name that cannot be printed", file="--storage")
        if not folder.strip() or not Path(folder).is_dir():
            problem = "is no folder" if Path(folder).exists() else "no such folder"
            help = "give a folder on the drive: a raw device is never written to"
            raise BadInput.of(f"{problem}: {folder[:200]}", file="--storage", help=help)
    folders = tuple(dict.fromkeys(os.path.abspath(folder) for folder in storage))
    cap = _amount(max_write, "B", "--max-write")
    whole = (MOST_WRITTEN_QUICKLY if quick else MOST_WRITTEN) if cap is None else cap
    return Options(quick=quick, storage=folders, max_write=whole / repeat)


def _amount(text: str | None, unit: str, flag: str) -> float | None:
    """The quantity that a flag gives; None where it was not given."""
    from ziplan.units import UnitError, parse

    if text is None:
        return None
    try:
        return parse(text, unit)
    except UnitError as error:
        raise BadInput.of(str(error), file=flag) from None


def _measure(
    asked: Options,
    budget: str | None,
    only: list[str],
    skip: list[str],
    forms: tuple[bool, bool],
    output: Path | None,
    extends: str,
    repeat: int,
) -> int:
    """Plan, say what is planned, and measure."""
    from ziplan.bench.runner import Run, chosen, planned, surveyed, with_plan
    from ziplan.report.bench_text import plan_sentence, plan_text

    dry_run, json = forms
    selected = chosen(only, skip)
    bare = surveyed(asked)
    plan: list[Planned] = planned(bare, asked, selected)
    record = with_plan(bare, [each for _ in range(repeat) for each in plan])
    if dry_run:
        deliver(_record_text(record) if json else plan_text(record, width()), None)
        return ExitCode.OK
    complain(plan_sentence(record).replace("\u00a0", " "))
    seconds = _amount(budget, "s", "--budget")
    run = Run(record, asked, plan, float("inf") if seconds is None else seconds, repeat)
    complete = _run(run, _keeper(output))
    code = _tell(run.record, output, extends, json)
    return code if complete else ExitCode.INTERRUPTED


def _run(run: Run, keep: Callable[[Record], None]) -> bool:
    """Measure; whether it came to its end. What ends a process keeps what was measured until then."""
    # What is ignored stays ignored (`nohup`).
    heeded = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN]
    before = {each: signal.signal(each, _interrupt) for each in heeded}
    progress = Told()
    try:
        keep(run.record)
        run.go(keep, progress.tell)
    except KeyboardInterrupt:
        keep(run.ended())
        return False
    finally:
        progress.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
    return True


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _record_text(record: Record) -> str:
    from ziplan.bench.record import dumps

    return dumps(record)


def _keeper(output: Path | None) -> Callable[[Record], None]:
    """What writes the record each time that something was added to it."""
    earlier, failed = is_there(output), list[BadInput]()

    def keep(record: Record) -> None:
        # A run that has measured nothing, or nothing yet, takes no place of one that has.
        if not record.measured and earlier:
            return
        try:
            save_record(output, _record_text(record))
        except BadInput as error:  # the run goes on: its answer is told in the end
            if not failed:
                warn(str(error))
            failed.append(error)

    return keep


def _tell(record: Record, output: Path | None, extends: str, json: bool) -> int:
    """The answer to stdout, and the machine file; exit 2 where nothing at all was measured."""
    from ziplan.bench.profile import profile_text
    from ziplan.hardware.profiles import load_node
    from ziplan.report.bench_text import bench_text

    base = load_node(extends)[0] if extends else None
    written, failure = [], None
    if output is not None and not record.measured and output.is_file():
        written = [f"nothing: nothing was measured, and {output} is left as it was"]
    elif output is not None:
        try:
            save(output, profile_text(record, extends))
            written = [told(output, "a machine file")]
        except BadInput as error:  # what was measured is told all the same
            written, failure = [f"nothing: {error}"], error
    deliver(_record_text(record) if json else bench_text(record, width(), written, base), None)
    if failure is not None:
        raise failure
    return ExitCode.OK if record.measured else ExitCode.BAD_INPUT


app.command("merge", short_help="One machine file of several nodes' records: the least of each value.")(merge)
app.command("import", short_help="A record of what nvbandwidth, fio or nccl-tests measured.")(import_)
