"""Public users' cases as data (cases/*.yaml), each run through `check` as the command does.

What a report does not state is not guessed: a case is run at the least that it can have been and at the
most, and what the two disagree on is unknown. Memory that is not stated is not judged.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

from ziplan.check.run import Checked, check
from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.inputs import Request
from ziplan.estimate import TierMemory
from ziplan.study.records import load_records, shipped_files
from ziplan.workload.load import load_model

MACHINE = ("like", "nodes", "gpus", "gpu", "gpu_memory", "host_memory")
"""What is said of a machine: one that it is like, and what differs."""
HERE = Path(__file__).parent / "cases"
UNBOUNDED = "1000 TB"
"""Host memory of a machine whose own is not stated: it is not judged."""
FEW_TOKENS = 16
"""The shortest sequence that a run without a stated length may have had."""
MANY_TOKENS = 4096
"""The longest, of a model that takes any."""
FILE = "ds_config.json"

CONFIG_ENDS = ("config rejected", "key ignored", "swap buffer")
MEMORY_ENDS = ("gpu oom", "host oom", "ran", "slow")
ENDS = (*CONFIG_ENDS, *MEMORY_ENDS, "pinned oom", "hang", "other")
"""How a run ended, as its report says."""

Says = Literal["fits", "does not fit", "unknown"]
Judged = Literal["hit", "miss", "abstained", "left out"]


@dataclass(frozen=True)
class User:
    """One report: what ran, on what, how it ended, and what `check` should have told its author.

    `of` is the report that this run is one of. `machine` names a machine (`like`) and what of it is stated:
    `gpu` or `gpu_memory`, `host_memory`. `least` is stated as "more than". `configs` are all that the
    report leaves possible. `tells` are findings, CODE or CODE@KEY, one of which names the cause.
    `left_out` is why no config, model or machine could be made of it; `miss` why a miss is one.
    """

    id: str
    url: str
    said: str
    ended: str
    of: str = ""
    model: str | dict[str, Any] = ""
    machine: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    least: dict[str, Any] = field(default_factory=dict)
    companions: tuple[str, ...] = ()
    trainer: Literal["none", "huggingface", "accelerate"] = "none"
    configs: tuple[dict[str, Any], ...] = ()
    arguments: dict[str, Any] | None = None
    accelerate: dict[str, Any] | None = None
    launch: str = ""
    tells: tuple[str, ...] = ()
    assumed: str = ""
    left_out: str = ""
    miss: str = ""

    @property
    def report(self) -> str:
        """The report that this run is of."""
        return self.of or self.id

    @property
    def judged_tiers(self) -> tuple[str, ...]:
        """Memories whose size is stated."""
        gpu = ("hbm",) if self.machine.get("gpu_memory") or self.machine.get("gpu") else ()
        return (*gpu, *(("dram",) if self.machine.get("host_memory") else ()))

    @property
    def died(self) -> str:
        """The memory that ran out; "" where none did."""
        return {"gpu oom": "hbm", "host oom": "dram"}.get(self.ended, "")


def users() -> list[User]:
    """Every case, by file and place."""
    known = {each.name for each in fields(User)}
    found = []
    for path in sorted(HERE.glob("*.yaml")):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8")):
            if unknown := set(entry) - known:
                raise ValueError(f"{path.name}: {entry['id']}: {unknown}")
            if unknown := set(entry.get("machine", ())) - set(MACHINE):
                raise ValueError(f"{path.name}: {entry['id']}: machine: {unknown}")
            if "configs" in entry:
                entry["configs"] = tuple(entry["configs"])
            found.append(User(**entry))
    return found


@dataclass(frozen=True)
class Told:
    """A case and its judgements: at the least and at the most that it can have been, of each config.

    `bounded` is whether there is a most.
    """

    user: User
    least: tuple[Checked, ...] = ()
    most: tuple[Checked, ...] = ()
    bounded: bool = False

    def tier(self, name: str) -> Says:
        """What is said of one memory."""
        least = [each.case.memory.get(name) for each in self.least]
        if least and all(memory is not None and memory.low > memory.available for memory in least):
            return "does not fit"
        most = [each.case.memory.get(name) for each in self.most]
        if (
            self.bounded
            and most
            and all(memory is not None and memory.high <= memory.available for memory in most)
        ):
            return "fits"
        return "unknown"

    def memory(self, name: str) -> tuple[TierMemory, TierMemory] | None:
        """Need of one memory at the least and at the most."""
        one, other = self.least[0].case.memory.get(name), self.most[-1].case.memory.get(name)
        return (one, other) if one is not None and other is not None else None

    @cached_property
    def says(self) -> Says:
        """The verdict over the memories that are stated."""
        each = [self.tier(name) for name in self.user.judged_tiers]
        if "does not fit" in each:
            return "does not fit"
        return "fits" if each and set(each) == {"fits"} else "unknown"

    @cached_property
    def told(self) -> tuple[str, ...]:
        """The findings that name the cause, CODE@KEY, where they are there at the least and at the most."""
        runs = [[f"{each.code}@{each.path}" for each in run.findings] for run in (*self.least, *self.most)]
        wanted = [each.partition("@") for each in self.user.tells]
        return tuple(
            found
            for found in dict.fromkeys(runs[0])
            if any(found.startswith(f"{code}@") and found.endswith(key) for code, _, key in wanted)
            and all(found in run for run in runs)
        )

    @property
    def open(self) -> tuple[str, ...]:
        """What decides memory and is not stated."""
        user = self.user
        names = {
            "sequence_length": "length",
            "micro_batch_size": "micro-batch",
            "activation_checkpointing": "recomputation",
            "precision": "precision",
        }
        lacking = [words for name, words in names.items() if not _stated(user, name)]
        lacking += ["what is offloaded"] if len(user.configs) > 1 else []
        return (*lacking, *(("that memory",) if user.died and user.died not in user.judged_tiers else ()))

    @property
    def judged(self) -> Judged:
        """Whether what is said is what happened."""
        user = self.user
        if user.left_out:
            return "left out"
        if user.tells:
            return "hit" if self.told else "miss"
        if self.says == "unknown" or (user.died and user.died not in user.judged_tiers):
            return "abstained"
        if not user.died:
            return "hit" if self.says == "fits" else "miss"
        return "hit" if self.tier(user.died) == "does not fit" else "miss"


def told_of(user: User, folder: Path) -> Told:
    """The judgements of a case, its files written below `folder`."""
    if user.left_out:
        return Told(user)
    folder.mkdir(parents=True, exist_ok=True)
    configs = user.configs or ({},)
    least = tuple(_checked(user, config, folder, most=False) for config in configs)
    most = tuple(_checked(user, config, folder, most=True) for config in configs)
    bounded = _stated(user, "sequence_length") and _stated(user, "micro_batch_size") and not user.least
    return Told(user, least, most, bounded)


def all_told(folder: Path) -> Iterator[Told]:
    """Every case, judged."""
    for user in users():
        yield told_of(user, folder / user.id)


def _stated(user: User, name: str) -> bool:
    given = user.arguments if name == "micro_batch_size" else None
    around = user.accelerate if name == "precision" else None
    return name in user.training or given is not None or around is not None


def _checked(user: User, config: dict[str, Any], folder: Path, most: bool) -> Checked:
    path = _written(user, config, folder, most)
    model = _model(user.model, folder)
    training = _training(user, config, model, most)
    request = Request(
        model=model,
        cluster=f"{user.machine.get('nodes', 1)}x {user.machine.get('like', 'dgx-a100-80g')}",
        settings=_settings(user.machine),
        training=training,
        companions=user.companions,
    )
    if user.launch:
        (folder / "launch.sh").write_text(user.launch)
    trainer = user.trainer if path.name == FILE else None
    return check(case_of(path, Asked(request, trainer)))


def _precision(user: User, most: bool) -> str:
    """What is stated, else 16 bits at the least and 32 at the most."""
    return str(user.training.get("precision", "fp32" if most else "fp16"))


def _written(user: User, config: dict[str, Any], folder: Path, most: bool) -> Path:
    """The config as a file, with the arguments of the Trainer or accelerate's config around it."""
    if user.accelerate is not None:
        path = folder / "accelerate.yaml"
        path.write_text(yaml.safe_dump({"distributed_type": "DEEPSPEED", **user.accelerate}))
        return path
    own = dict(config)
    path = folder / FILE
    if user.arguments is None:
        precision = _precision(user, most)
        if precision != "fp32" and not own.keys() & {"fp16", "bf16"}:
            own[precision] = {"enabled": True}
        own = {**_batch(user, config), **own}
    path.write_text(json.dumps(own, indent=2))
    if user.arguments is None:
        return path
    outer = folder / "arguments.json"
    outer.write_text(json.dumps({"output_dir": "out", "deepspeed": FILE, **user.arguments}, indent=2))
    return outer


def _batch(user: User, config: dict[str, Any]) -> dict[str, Any]:
    """The batch of a config that was reported without one."""
    if "train_batch_size" in config:
        return {}
    if user.trainer == "none":
        return {"train_micro_batch_size_per_gpu": _micro_batch(user)}
    return {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}


def _micro_batch(user: User) -> int:
    return int(user.least.get("micro_batch_size", user.training.get("micro_batch_size", 1)))


def _training(user: User, config: dict[str, Any], model: str, most: bool) -> dict[str, Any]:
    """What is stated of training; of the rest what needs the least memory, or the most."""
    unstated = {"attention": "eager" if most else "flash", "sequence_length": FEW_TOKENS}
    if most and "sequence_length" not in user.training:
        unstated["sequence_length"] = load_model(model).max_sequence_length or MANY_TOKENS
    training = {**unstated, **user.least, **user.training}
    if user.accelerate is not None or user.trainer != "none":
        training.setdefault("micro_batch_size", _micro_batch(user))
    elif user.arguments is None:
        training.pop("micro_batch_size", None)
    training["precision"] = _precision(user, most)
    if "fp16" in config or "bf16" in config or user.accelerate is not None or user.arguments is not None:
        training.pop("precision", None)
    return training


def _settings(machine: dict[str, Any]) -> tuple[str, ...]:
    names = {
        "gpu": "gpu",
        "gpus": "gpus_per_node",
        "gpu_memory": "tiers.hbm.capacity",
        "host_memory": "tiers.dram.capacity",
    }
    given = {"host_memory": UNBOUNDED, **machine}
    return tuple(f"{path}={given[name]}" for name, path in names.items() if given.get(name))


def _model(model: str | dict[str, Any], folder: Path) -> str:
    """A shipped shape, the shape of a measurement's record ("record ID"), or one as config.json."""
    if isinstance(model, str) and not model.startswith("record "):
        return model or "llama-2-7b"
    shape = _shapes()[model.removeprefix("record ")] if isinstance(model, str) else model
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / "config.json").write_text(json.dumps(shape))
    return str(folder / "model")


_SHAPES: dict[str, dict[str, Any]] = {}


def _shapes() -> dict[str, dict[str, Any]]:
    """Shapes of the measurements' records, by id."""
    if not _SHAPES:
        _SHAPES.update({r.entry.id: r.entry.shape for r in load_records(shipped_files()) if r.entry.shape})
    return _SHAPES
