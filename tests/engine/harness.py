"""Run a DeepSpeed config in the real engine, a process a rank, and give back what was counted."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine import nursery


@dataclass(frozen=True)
class Spec:
    """A model to train: `model` is a Hugging Face config with its `model_type`.

    `checkpointing` is none, reentrant or non_reentrant; `trainable` is what a model.yaml says.
    """

    model: Mapping[str, Any]
    sequence_length: int = 4
    checkpointing: str = "none"
    steps: int = 3
    trainable: Any = "all"


@dataclass(frozen=True)
class World:
    """How many ranks; `simulated` means one process that is rank 0 of so many."""

    ranks: int = 1
    simulated: bool = False


class EngineFailed(AssertionError):
    """DeepSpeed did not train; the message ends with what it said."""


@dataclass(frozen=True)
class Result:
    """What one rank counted over the run; bytes are that rank's own."""

    data: Mapping[str, Any]

    @property
    def params(self) -> int:
        """Parameters of the whole model."""
        return self.data["params"]

    @property
    def last(self) -> Mapping[str, Any]:
        """The last optimizer step: by then traffic is steady (the third, by default)."""
        return self.data["steps"][-1]

    @property
    def read_bytes(self) -> Mapping[str, int]:
        """Swap bytes read in the last step, by class."""
        return self.last["read_bytes"]

    @property
    def write_bytes(self) -> Mapping[str, int]:
        """Swap bytes written in the last step, by class."""
        return self.last["write_bytes"]

    @property
    def fetches(self) -> float:
        """F: elements gathered in the last step over parameters of the model."""
        return self.last["gathered_elements"] / self.params

    @property
    def losses(self) -> list[float]:
        """The loss of each step."""
        return [step["loss"] for step in self.data["steps"]]

    @property
    def file_bytes(self) -> Mapping[str, int]:
        """Bytes of swap files at the end, by class (those of all ranks that ran)."""
        return self.data["files"]["bytes"]

    @property
    def locked_bytes(self) -> Mapping[str, int]:
        """Page-locked bytes at the end, by the DeepSpeed function that locked them."""
        return self.data["locked_bytes"]

    @property
    def peak(self) -> Mapping[str, int]:
        """Highest values: live_elements, param_buffers, optimizer_buffers, locked_bytes, ..."""
        return {**dict.fromkeys(PEAKS, 0), **self.data["peak"]}


PEAKS = ("live_elements", "param_buffers", "optimizer_buffers", "locked_bytes", "unswapped_gradient_bytes")


def run(config: Mapping[str, Any], spec: Spec, world: World, folder: Path) -> Result:
    """Train `spec` under `config` and return what rank 0 counted; swap files go below `folder`."""
    return run_ranks(config, spec, world, folder)[0]


def run_ranks(config: Mapping[str, Any], spec: Spec, world: World, folder: Path) -> list[Result]:
    """As `run`, but what every rank that ran counted."""
    folder.mkdir(parents=True, exist_ok=True)
    config = with_swap_folder(config, folder / "swap")
    ranks = range(1 if world.simulated else world.ranks)
    jobs = [_job(config, spec, world, rank, folder) for rank in ranks]
    try:
        return [Result(found) for found in nursery.run("engine.train", jobs, folder)]
    except nursery.RunFailed as failed:
        raise EngineFailed(f"under\n{json.dumps(config, indent=2)}\n{failed}") from None
    finally:
        shutil.rmtree(folder / "swap", ignore_errors=True)  # before the system writes it to disk


def with_swap_folder(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The config with every `nvme_path` in it replaced by `folder`."""
    changed = copy.deepcopy(dict(config))
    for section in changed.get("zero_optimization", {}).values():
        if isinstance(section, dict) and "nvme_path" in section:
            section["nvme_path"] = str(folder)
            folder.mkdir(exist_ok=True)
    return changed


def _job(config: Mapping[str, Any], spec: Spec, world: World, rank: int, folder: Path) -> dict[str, Any]:
    return {
        "config": config,
        "spec": asdict(spec),
        "rank": rank,
        "world": world.ranks,
        "simulated": world.simulated,
        "store": str(folder / "store"),
    }
