"""What a launch script says about the environment that a run gets."""

from __future__ import annotations

import re
from typing import NamedTuple


class Launch(NamedTuple):
    """The text of a launch script, and its name."""

    name: str
    text: str

    @property
    def commands(self) -> str:
        """The text without its comments."""
        return re.sub(r"(?m)^\s*#.*$", "", self.text)

    @property
    def binds_cores(self) -> bool:
        """Whether ranks get cores of their own, or a stated number of threads."""
        threads = re.search(r"\bOMP_NUM_THREADS=[\"']?([0-9]+|\$)", self.commands)
        several = threads is not None and threads[1] not in ("0", "1")
        return several or "--bind_cores_to_rank" in self.commands

    @property
    def keeps_pinned_sizes(self) -> bool:
        """Whether PyTorch is told not to round pinned blocks up, or DeepSpeed to pin without it."""
        settings = ("pinned_max_round_threshold_mb", "DS_PIN_MEMORY_BACKEND=native")
        return any(setting in self.commands for setting in settings)

    @property
    def recomputes(self) -> bool:
        """Whether it says that layers are recomputed; ziplan's scripts say it in a comment on train.py."""
        return re.search(r"gradient_checkpointing(_enable\(|[= ]+[Tt]rue|\s*$)", self.text) is not None

    @property
    def lifts_memlock(self) -> bool:
        """Whether it asks for more locked memory than a shell has."""
        return re.search(r"\bulimit\s+-[a-zA-Z]*l", self.commands) is not None
