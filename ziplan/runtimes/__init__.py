"""Training runtimes: what each really does with bytes, one folder a runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import cast

from ziplan.runtimes.runtime import Runtime

FOLDERS = {
    "deepspeed": "ziplan.runtimes.deepspeed",
    "fsdp": "ziplan.runtimes.fsdp",
    "ideal": "ziplan.runtimes.ideal",
    "megatron": "ziplan.runtimes.megatron",
}
"""Name to folder; a runtime is imported when it is asked for."""


class _Runtimes(Mapping[str, Runtime]):
    """Every runtime by name."""

    def __getitem__(self, name: str) -> Runtime:
        return cast(Runtime, import_module(FOLDERS[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(FOLDERS)

    def __len__(self) -> int:
        return len(FOLDERS)


RUNTIMES: Mapping[str, Runtime] = _Runtimes()
"""Every runtime by name."""
