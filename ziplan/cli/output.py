"""What ziplan writes and where: stdout is the answer only, everything else is stderr."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TextIO

from ziplan.errors import BadInput
from ziplan.report.lines import Lines, coloured, in_ascii, plain

WIDEST = 100


def width() -> int:
    """Columns to write in: COLUMNS or the terminal's, at most 100."""
    return max(40, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))


def is_unicode(stream: TextIO) -> bool:
    """Whether the stream takes every character."""
    encoding = (getattr(stream, "encoding", None) or "ascii").lower()
    return encoding.replace("-", "").startswith("utf")


def wants_colour(stream: TextIO) -> bool:
    """Colour on a terminal only, unless NO_COLOR or FORCE_COLOR says otherwise."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def show(lines: Lines) -> None:
    """Write an answer made of styled lines to stdout."""
    write(coloured(lines) if sys.stdout and wants_colour(sys.stdout) else plain(lines))


def write(text: str) -> None:
    """Write text to stdout; a reader that has gone away is no error."""
    if not sys.stdout:  # the interpreter started with it closed
        raise BadInput.of("is closed: there is nowhere to write the answer", file="stdout")
    try:
        _put(sys.stdout, text)
    except BrokenPipeError:
        pass
    except OSError as error:
        raise BadInput.of(f"cannot be written: {error.strerror or error}", file="stdout") from error


def deliver(answer: str | Lines, output: Path | None) -> None:
    """Write an answer, made of styled lines or ready as it is, to a file or to stdout."""
    if output is not None:
        save(output, answer if isinstance(answer, str) else plain(answer))
    elif isinstance(answer, str):
        write(answer)
    else:
        show(answer)


def complain(text: str) -> None:
    """Write text to stderr."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        _put(sys.stderr, f"{text}\n")


def warn(text: str) -> None:
    """A warning, on stderr."""
    complain(f"ziplan: warning: {text}")


def _put(stream: TextIO, text: str) -> None:
    stream.write(text if is_unicode(stream) else in_ascii(text))
    stream.flush()


def close_quietly() -> None:
    """Flush stdout; where that fails, which `write` has told, keep the interpreter from telling again."""
    if not sys.stdout:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def save(path: Path, text: str | bytes) -> None:
    """Write one file, whole or not at all; a pipe or a device is written to, a link's target replaced."""
    if path.is_dir():
        raise BadInput.of("is a folder, expected a file to write", file=str(path))
    if path.exists() and not path.is_file():
        _write_through(path, text)
    else:
        final = path.resolve()
        save_all(final.parent, {final.name: text})


def writable(path: Path | None) -> None:
    """BadInput where an answer could not be written in the end: told before it is worked out."""
    if path is None or (path.exists() and not path.is_dir() and not path.is_file()):
        return
    if path.is_dir():
        raise BadInput.of("is a folder, expected a file to write", file=str(path))
    folder = path.resolve().parent
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise BadInput.of("is a file, expected a folder to write into", file=str(there))
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise BadInput.of(f"cannot be written: {error.strerror or error}", file=str(folder)) from error


def apart(outputs: Iterable[Path | None], inputs: Iterable[str | Path | None] = ()) -> None:
    """BadInput where an answer would replace another one of the command, or a file that it reads."""
    files = [each for each in inputs if each is not None and os.path.isfile(each)]
    taken = {os.path.realpath(each): "is read by this command" for each in files}
    for path in outputs:
        # Pipes and devices take more than one answer.
        if path is None or (os.path.exists(path) and not os.path.isfile(path)):
            continue
        final = os.path.realpath(path)
        if final in taken:
            raise BadInput.of(taken[final], file=str(path), help="name another file to write")
        taken[final] = "is to be written twice"


def _write_through(path: Path, text: str | bytes) -> None:
    try:
        path.write_bytes(_encoded(text))
    except OSError as error:
        raise BadInput.of(f"cannot be written: {error.strerror or error}", file=str(path)) from error


def save_all(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files into a folder: all to temporary names first, then each by a rename."""
    if folder.exists() and not folder.is_dir():
        raise BadInput.of("is a file, expected a folder to write into", file=str(folder))
    waiting: list[tuple[str, Path]] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=".ziplan-")
            waiting.append((temporary, folder / name))
            _fill(handle, temporary, text)
        for temporary, final in waiting:
            os.replace(temporary, final)
    except OSError as error:
        raise BadInput.of(f"cannot be written: {error.strerror or error}", file=str(folder)) from error
    finally:
        for temporary, _ in waiting:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _fill(handle: int, name: str, text: str | bytes) -> None:
    with os.fdopen(handle, "wb") as file:
        file.write(_encoded(text))
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(name, 0o666 & ~umask)
