"""The entry point: the `ziplan` command and the one error boundary around it."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from ziplan import __version__
from ziplan.cli.lazy import LazyGroup
from ziplan.cli.output import close_quietly, complain, write
from ziplan.errors import BadInput, ExitCode, ZiplanError

ISSUES = "please report it with the command line and the output of the same command under ZIPLAN_TRACEBACK=1"

app = typer.Typer(
    cls=LazyGroup,
    name="ziplan",
    help="Plan the training of models whose state does not fit in GPU memory.",
    epilog="Exit codes: 0 fits, 1 does not fit, 2 could not answer, 3 unknown, 70 a bug in ziplan.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        write(f"ziplan {__version__}\n")
        raise typer.Exit


@app.callback()
def ziplan(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Plan the training of models whose state does not fit in GPU memory."""


MINUS_NODES = re.compile("-[0-9]")
"""What the parser takes '-1x dgx-h100' for: an option that starts with a digit."""

OUT_OF_REACH = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EIO, errno.ESTALE)
"""What the system answers for a path that leads nowhere for this user."""

UsageError: Any = typer.BadParameter.__mro__[2]
"""Click's own base of everything wrong with a command line; typer may bring its own click."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ziplan and exit with its code."""
    code = run(list(sys.argv[1:] if arguments is None else arguments))
    close_quietly()
    if code == ExitCode.INTERRUPTED:
        # An interrupt that came through an `exec` (of which imports have many) makes the
        # interpreter end by the signal, whatever code it is told.
        os._exit(code)
    # The answer is out: an interrupt while the interpreter takes itself down has nothing to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line; every way it can end becomes an exit code here and only here."""
    try:
        return _invoke(arguments)
    except BadInput as error:
        return _told(error)
    except ZiplanError as error:
        complain(f"ziplan: {error}")
        return error.exit_code
    except UsageError as error:
        error.show()
        if MINUS_NODES.match(getattr(error, "option_name", "")):
            complain("A number of nodes in front of a machine is 1 or more: '4x dgx-h100'")
        return ExitCode.BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        complain("ziplan: interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.OK
    except Exception as error:  # noqa: BLE001 - the boundary: whatever is left is our bug
        return _out_of_reach(error) or _bug(error)


def _told(error: BadInput) -> int:
    from ziplan.report.problems import problem_text

    complain("\n".join(problem_text(problem) for problem in error.problems))
    return error.exit_code


def _invoke(arguments: list[str]) -> int:
    command: Any = typer.main.get_command(app)
    if "_ZIPLAN_COMPLETE" in os.environ:
        command.main(args=arguments, prog_name="ziplan", standalone_mode=False)
        return ExitCode.OK
    try:
        with command.make_context("ziplan", arguments) as context:
            result = command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    return int(result or 0)


def _out_of_reach(error: Exception) -> int:
    """The code where a path is in the way and no bug, which is told; 0 where it is something else."""
    if not isinstance(error, OSError) or error.errno not in OUT_OF_REACH:
        return 0
    if not isinstance(error.filename, str):
        return 0
    said = str(error.strerror)
    return _told(BadInput.of(f"cannot be reached: {said[:1].lower()}{said[1:]}", file=error.filename))


def _bug(error: Exception) -> int:
    if os.environ.get("ZIPLAN_TRACEBACK"):
        complain("".join(traceback.format_exception(error)).rstrip())
    said = " ".join(str(error).split())[:200]
    complain(f"ziplan: this is a bug in ziplan: {type(error).__name__}: {said}; {ISSUES}")
    return ExitCode.BUG
