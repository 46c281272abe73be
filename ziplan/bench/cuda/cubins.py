"""Compiled kernels in the user's cache folder, by the hash of what they were made from."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

DIGEST = hashlib.sha256().digest_size


class Cubins:
    """A folder of cubins. Each file starts with the digest of the rest: one that was damaged is made anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_user(cls) -> Cubins:
        """That of this user: below $XDG_CACHE_HOME, else ~/.cache (the XDG base directory specification)."""
        root = os.environ.get("XDG_CACHE_HOME", "")
        return cls((Path(root) if Path(root).is_absolute() else Path.home() / ".cache") / "ziplan" / "cubins")

    def get(self, key: bytes, make: Callable[[], bytes]) -> bytes:
        """What `key` was compiled to, made where it is not there. No error without a folder."""
        path = self.folder / f"{hashlib.sha256(key).hexdigest()}.cubin"
        with suppress(OSError):
            stored = path.read_bytes()
            if hashlib.sha256(stored[DIGEST:]).digest() == stored[:DIGEST]:
                return stored[DIGEST:]
        made = make()
        with suppress(OSError):
            self._write(path, hashlib.sha256(made).digest() + made)
        return made

    def _write(self, path: Path, content: bytes) -> None:
        """By rename: a reader sees all of the file or none, also while several processes write it."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
