"""What a launch script says about the environment that a run gets."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from ziplan.plan import Checkpointing
from ziplan.runtimes.shared.said import RECOMPUTED
from ziplan.units import Launcher

_THREADS = re.compile(r"(?:\bOMP_NUM_THREADS=|--num_cpu_threads_per_process[= ])[\"']?(0*[1-9]\d{0,3}\b|\$)")
_RECOMPUTES = re.compile(
    r"gradient_checkpointing(_enable\(|[= ]+[Tt]rue|\s*$)|deepspeed\.checkpointing\.checkpoint\("
)
MODES: dict[Literal["none", "selective", "full"], str] = {
    "none": RECOMPUTED[Checkpointing.NONE],
    "selective": RECOMPUTED[Checkpointing.SELECTIVE],
    "full": RECOMPUTED[Checkpointing.FULL],
}
"""Modes of `activation_checkpointing`, as ziplan's scripts say them."""
_RECOMPUTED = re.compile(rf"(?m)^#\s+recomputation: ({'|'.join(MODES.values())})$")
_LAUNCHERS: dict[Launcher, re.Pattern[str]] = {
    "accelerate": re.compile(r"\baccelerate(-launch|\s+launch)\b"),
    "torchrun": re.compile(r"\btorchrun\b|\btorch\.distributed\.(run|launch)\b"),
    "deepspeed": re.compile(r"(?m)(^|[\s/;&])deepspeed\s"),
}
"""What starts a run, by how a command line names it."""


class Launch(NamedTuple):
    """The text of a launch script, and its name."""

    name: str
    text: str

    @property
    def commands(self) -> str:
        """The text without its comments."""
        return re.sub(r"(?m)^\s*#.*$", "", self.text)

    @property
    def threads(self) -> int | Launcher | None:
        """OpenMP threads of each rank, else what starts the run; None where it says neither.

        Cores that are bound count before the variable, which `deepspeed` then sets itself, and a number that
        the shell works out is taken to divide the cores.
        """
        if "--bind_cores_to_rank" in self.commands:
            return "bound"
        stated = _THREADS.search(self.commands)
        if stated is not None:
            return "bound" if stated[1] == "$" else int(stated[1])
        return next((name for name, command in _LAUNCHERS.items() if command.search(self.commands)), None)

    @property
    def keeps_pinned_sizes(self) -> bool:
        """Whether PyTorch is told not to round pinned blocks up, or DeepSpeed to pin without it."""
        settings = ("pinned_max_round_threshold_mb", "DS_PIN_MEMORY_BACKEND=native")
        return any(setting in self.commands for setting in settings)

    @property
    def expands_segments(self) -> bool | None:
        """Whether PyTorch is told to let the GPU's segments grow, or not to; None: neither."""
        stated = re.search(r"\bexpandable_segments:\s*([Tt]rue|[Ff]alse)", self.commands)
        return None if stated is None else stated[1] in ("True", "true")

    @property
    def recomputes(self) -> Literal["none", "selective", "full"] | None:
        """What it says is recomputed; ziplan's scripts say it in a comment on train.py. None: unsaid."""
        said = _RECOMPUTED.search(self.text)
        if said is not None:
            return next(mode for mode, words in MODES.items() if words == said[1])
        return "full" if _RECOMPUTES.search(self.text) else None

    @property
    def lifts_memlock(self) -> bool:
        """Whether it asks for more locked memory than a shell has."""
        return re.search(r"\bulimit\s+-[a-zA-Z]*l", self.commands) is not None
