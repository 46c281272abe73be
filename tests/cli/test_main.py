"""The boundary: how every way of ending looks and exits; help, version, completion."""

import errno
import os
import re
import subprocess
import sys

import pytest
from cli.runs import FIT, process, ziplan

from ziplan import __version__
from ziplan.cli import main as entry
from ziplan.cli.lazy import COMMANDS, loaded
from ziplan.cli.output import save
from ziplan.errors import BadInput, CannotEmit, Problem


def raising(monkeypatch, error):
    def raise_it(*_, **__):
        raise error

    monkeypatch.setattr("ziplan.cli.fit.answer_to", raise_it)


def test_version_and_help_are_the_answer(capsys):
    assert ziplan(capsys, "--version").out == f"ziplan {__version__}\n"
    helped = ziplan(capsys, "--help")
    assert (helped.code, helped.err) == (0, "")


def test_help_lists_what_exists_and_nothing_else(capsys):
    listed = re.findall(r"^  ([a-z]+)  ", ziplan(capsys, "--help").out.partition("Commands:")[2], re.M)
    assert listed == list(COMMANDS)
    for name in listed:
        assert loaded(name).name == name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_fits(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    helped = ziplan(capsys, name, "--help")
    assert helped.code == 0
    assert f"Usage: ziplan {name}" in helped.out
    assert max(map(len, helped.out.splitlines())) <= 80


def test_no_command_shows_the_help_and_is_an_error(capsys):
    ran = ziplan(capsys)
    assert ran.code == 2
    assert "Commands:" in ran.out + ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fti",), "Did you mean 'fit'?"),
        (("fit", "a", "b", "--sequenc-length", "1"), "--sequenc"),
        (("fit", "a", "b", "--sequence-length", "0"), "--sequence-length"),
        (("fit", "a", "b", "--precision", "int8"), "--precision"),
        (("fit", "a"), "CLUSTER"),
        (("fit", "a", "-1x"), "'4x dgx-h100'"),
        (("fit", "a", "-1x dgx-h100"), "'4x dgx-h100'"),
    ],
)
def test_a_wrong_command_line_exits_2(arguments, said, capsys):
    ran = ziplan(capsys, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_every_problem_is_shown_sorted_with_its_caret(capsys, monkeypatch):
    second = Problem(
        "b.yaml",
        2,
        3,
        "ZP012",
        "unknown key `lenght`",
        text="  lenght: 1",
        length=6,
        hint="did you mean `length`?",
    )
    first = Problem("a.yaml", 1, 1, "ZP010", "expected text, not 7", text="7", length=1)
    raising(monkeypatch, BadInput(second, first))
    ran = ziplan(capsys, *FIT)
    assert (ran.code, ran.out) == (2, "")
    assert (
        ran.err
        == """\
a.yaml:1:1: ZP010 expected text, not 7
  |
1 | 7
  | ^
b.yaml:2:3: ZP012 unknown key `lenght`
  |
2 |   lenght: 1
  |   ^^^^^^ did you mean `length`?
"""
    )


def test_what_ziplan_refuses_is_one_sentence(capsys, monkeypatch):
    raising(monkeypatch, CannotEmit("this runtime has no tiles"))
    ran = ziplan(capsys, *FIT)
    assert (ran.code, ran.out, ran.err) == (2, "", "ziplan: this runtime has no tiles\n")


def test_an_interrupt_exits_130(capsys, monkeypatch):
    raising(monkeypatch, KeyboardInterrupt())
    assert ziplan(capsys, *FIT).code == 130


@pytest.mark.parametrize("command", [["-m", "ziplan"], ["-c", "from ziplan.__main__ import main; main()"]])
def test_an_interrupt_at_any_time_exits_130_and_shows_no_traceback(command):
    """From the first line of ziplan on: a tracer sends the interrupt when a module is about to load."""
    for module in ("ziplan.cli.main", "typer", "ziplan.cli.lazy", "ziplan.cli.fit", "numpy", "pydantic"):
        code = (
            "import os, signal, sys\n"
            "class Interrupting:\n"
            "    def find_spec(self, name, *_):\n"
            f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
            "sys.meta_path.insert(0, Interrupting())\n"
            "import runpy; sys.argv = ['ziplan', *sys.argv[1:]]\n"
            + ("runpy.run_module('ziplan', run_name='__main__')" if "-m" in command else command[1])
        )
        done = subprocess.run([sys.executable, "-c", code, *FIT], capture_output=True, text=True, check=False)
        assert done.returncode == 130, (module, done.stderr)
        assert done.stdout == ""
        assert done.stderr in ("", "ziplan: interrupted\n"), module


def test_an_interrupt_that_was_ignored_stays_ignored():
    code = (
        "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from ziplan.__main__ import main\n"
        "os.kill(os.getpid(), signal.SIGINT); main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "models"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_python_m_is_the_same_command():
    done = subprocess.run(
        [sys.executable, "-m", "ziplan", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"ziplan {__version__}\n")


def test_a_bug_says_that_it_is_one(capsys, monkeypatch):
    monkeypatch.delenv("ZIPLAN_TRACEBACK", raising=False)
    raising(monkeypatch, KeyError("surprise\nin two lines"))
    ran = ziplan(capsys, *FIT)
    assert (ran.code, ran.out) == (70, "")
    assert ran.err.count("\n") == 1
    assert "this is a bug in ziplan: KeyError" in ran.err
    assert "ZIPLAN_TRACEBACK=1" in ran.err
    monkeypatch.setenv("ZIPLAN_TRACEBACK", "1")
    assert "Traceback (most recent call last)" in ziplan(capsys, *FIT).err


def test_a_closed_pipe_is_no_error():
    code = "from ziplan.cli.main import main; main()"
    for arguments in (["explain", "article"], ["--help"], ["models", "list"]):
        with subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as running:
            running.stdout.close()
            assert running.stderr.read() == b""
            assert running.wait(60) == 0


def test_a_full_disk_is_told_and_no_bug():
    with open("/dev/full", "wb") as full:
        ran = process("explain", "article", stdout=full)
    assert ran.code == 2
    assert "stdout" in ran.err
    assert "Traceback" not in ran.err


def test_ascii_where_stdout_is_not_utf8():
    ran = process("explain", "article", env={"PYTHONIOENCODING": "ascii"})
    assert ran.code == 0
    assert ran.out.isascii()
    assert "8*P*T" in ran.out


def test_colour_only_where_it_is_wanted():
    assert "\x1b[" not in process("explain", "machine_balance").out
    assert "\x1b[" in process("explain", "machine_balance", env={"FORCE_COLOR": "1"}).out
    assert "\x1b[" not in process("explain", "machine_balance", env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).out


def test_a_shell_completes_commands_and_names():
    def completed(words):
        env = {"_ZIPLAN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return process(env=env).out.split()

    assert "fit" in completed("ziplan f")
    assert "llama-3.1-8b" in completed("ziplan fit llama-3.1")
    assert "dgx-a100-80g" in completed("ziplan fit llama-3.1-8b dgx-a")
    assert completed("ziplan fit --runtime de") == ["deepspeed"]


def test_help_imports_no_more_than_the_command_line_needs():
    code = (
        "import sys; from ziplan.cli.main import run; run(['--help']);"
        "print(sorted({'numpy', 'rich', 'yaml', 'torch', 'scipy'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_the_boundary_knows_the_clicks_of_every_typer():
    assert entry.UsageError.__name__ == "ClickException"


def test_a_closed_stdout_is_told_and_never_a_verdict():
    """The exit code of a shell's `>&-` must not read as "does not fit"."""
    run = "import sys; from ziplan.cli.main import main; main(['models', 'list'])"
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" -c "{run}" >&-', sys.executable], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "stdout: ZP001 is closed" in done.stderr
    assert "Traceback" not in done.stderr


def test_output_to_a_pipe_is_written_to_it(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    save(pipe, "answer")
    assert os.read(reader, 100) == b"answer"
    os.close(reader)
    assert pipe.is_fifo()


def test_output_to_a_link_replaces_its_target(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    save(link, "new")
    assert (target.read_text(), link.is_symlink()) == ("new", True)


@pytest.mark.parametrize(
    "words",
    [
        (*FIT, "--out"),
        ("bench", "--only", "gpu", "-o"),
        ("bench", "--dry-run", "--storage"),
        ("bench", "--extends"),
        ("fit", "llama-3.1-8b"),
        ("init",),
    ],
)
def test_a_path_that_the_system_does_not_follow_is_told_and_no_bug(capsys, words):
    done = ziplan(capsys, *words, "a" * 5000)
    assert done.code == 2
    assert "ZP001 cannot be reached: file name too long" in done.err


def test_a_folder_that_is_closed_to_this_user_is_told_and_no_bug(capsys, monkeypatch):
    raising(monkeypatch, PermissionError(errno.EACCES, "Permission denied", "/root/x"))
    done = ziplan(capsys, *FIT)
    assert (done.code, done.err) == (2, "/root/x: ZP001 cannot be reached: permission denied\n")
    # Of a file that nobody named, it is.
    raising(monkeypatch, PermissionError(errno.EACCES, "Permission denied"))
    assert ziplan(capsys, *FIT).code == 70
