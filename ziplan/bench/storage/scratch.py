"""A file to measure a drive with: without a name, opened for direct I/O, and proof that it is direct.

The file has no name from the start (O_TMPFILE), or loses it as soon as it is opened: however the process
ends, the kernel frees it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import secrets
import stat
import struct
from collections.abc import Iterator
from typing import NamedTuple

from ziplan.bench.measurement import CannotMeasure

PAGE = 4096
FREE_FLOOR = 0.20
"""Share of a file system that stays free: flash that is fuller writes slower, and others need room."""

_STATX = {"x86_64": 332, "aarch64": 291}
"""Number of the statx call by architecture (Linux: arch/x86/entry/syscalls/syscall_64.tbl, unistd.h)."""
_AT_EMPTY_PATH = 0x1000
_STATX_DIOALIGN = 0x2000
_DIO_ALIGN_AT = 0x98
"""Offset of stx_dio_mem_align and stx_dio_offset_align in struct statx (include/uapi/linux/stat.h)."""


class Scratch(NamedTuple):
    """An open file without a name. `alignment` is what direct I/O asks of offsets, `proof` what shows it."""

    fd: int
    folder: str
    alignment: int
    proof: str


class Room(NamedTuple):
    """What a file system has: bytes in all, free to this user, and what may be taken above the floor."""

    size: float
    free: float

    @property
    def usable(self) -> float:
        """Bytes that may be written before less than the floor is free."""
        return max(0.0, self.free - FREE_FLOOR * self.size)


def room(folder: str) -> Room:
    """The room on the file system of a folder."""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        raise CannotMeasure(f"{folder}: {said(error)}") from None
    return Room(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)


@contextlib.contextmanager
def scratch(folder: str) -> Iterator[Scratch]:
    """A file in a folder, open for direct reads and writes and proved to be direct; gone at the end."""
    _refuse_what_is_no_folder(folder)
    fd = _open(folder)
    try:
        yield Scratch(fd, folder, *prove_direct(fd))
    finally:
        os.close(fd)


def _refuse_what_is_no_folder(folder: str) -> None:
    try:
        mode = os.stat(folder).st_mode
    except (OSError, ValueError) as error:
        raise CannotMeasure(f"{folder}: {said(error)}") from None
    if stat.S_ISBLK(mode):
        raise CannotMeasure(f"{folder}: is a raw device, which is never written to: give a folder on it")
    if not stat.S_ISDIR(mode):
        raise CannotMeasure(f"{folder}: is not a folder")


def _open(folder: str) -> int:
    flags = os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC
    try:
        return os.open(folder, flags | os.O_TMPFILE, 0o600)
    except OSError as error:
        # What file systems without O_TMPFILE answer; EINVAL is also how they refuse O_DIRECT.
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise CannotMeasure(f"{folder}: {said(error)}") from None
    path = os.path.join(folder, f".ziplan-bench-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        # With O_DIRECT refused, the file was created all the same.
        with contextlib.suppress(OSError):
            os.unlink(path)
        what = "takes no direct I/O (O_DIRECT)" if error.errno == errno.EINVAL else said(error)
        raise CannotMeasure(f"{folder}: {what}") from None
    os.unlink(path)
    return fd


def said(error: Exception) -> str:
    """What the system says of a failure, without its number."""
    return str(getattr(error, "strerror", None) or error)


def prove_direct(fd: int) -> tuple[int, str]:
    """Alignment of direct I/O, and what proves that reads of this file do not come from memory.

    O_DIRECT alone proves nothing: tmpfs takes it. The kernel's own word is STATX_DIOALIGN (Linux 6.1); a
    read from an odd address and offset that is refused shows that a device below sets the rules.
    """
    told = _told_alignment(fd)
    if told == 0:
        raise CannotMeasure("the file system says that it does no direct I/O (STATX_DIOALIGN)")
    try:
        os.pwrite(fd, _zeros(), 0)
    except OSError as error:
        raise CannotMeasure(f"a direct write of {PAGE} bytes fails: {said(error)}") from None
    refused = _refuses_unaligned(fd)
    if told is not None and (refused or told == 1):
        return max(told, PAGE), "STATX_DIOALIGN" + (", unaligned read refused" if refused else "")
    if told is None and refused:
        return PAGE, "unaligned read refused"
    raise CannotMeasure(
        "takes O_DIRECT but does not heed it: an unaligned read succeeds, as from memory (tmpfs)"
    )


def _zeros() -> mmap.mmap:
    return mmap.mmap(-1, PAGE)


def _refuses_unaligned(fd: int) -> bool:
    buffer = mmap.mmap(-1, 2 * PAGE)
    try:
        os.preadv(fd, [memoryview(buffer)[1:513]], 1)
    except OSError:
        return True
    return False


def _told_alignment(fd: int) -> int | None:
    """The alignment of offsets that statx tells; 0 where direct I/O is not supported, None where unknown."""
    number = _STATX.get(os.uname().machine)
    if number is None:
        return None
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(256)
    failed = library.syscall(
        ctypes.c_long(number),
        ctypes.c_int(fd),
        ctypes.c_char_p(b""),
        ctypes.c_int(_AT_EMPTY_PATH),
        ctypes.c_uint(_STATX_DIOALIGN),
        buffer,
    )
    (mask,) = struct.unpack_from("<I", buffer, 0)
    if failed or not mask & _STATX_DIOALIGN:
        return None
    memory, offset = struct.unpack_from("<II", buffer, _DIO_ALIGN_AT)
    return int(max(memory, offset)) if memory and offset else 0
