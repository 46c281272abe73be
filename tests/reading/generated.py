"""Configs drawn from the table: mostly plausible, some wrong, each from a seed."""

from __future__ import annotations

import json
import random
from typing import Any

from ziplan.runtimes.deepspeed.reading.table import Key
from ziplan.runtimes.deepspeed.reading.walk import SECTIONS

ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        2,
        3,
        4,
        -1,
        1.0,
        0.5,
        1.5,
        1e8,
        "auto",
        "1",
        "5e8",
        "1.0",
        "true",
        "cpu",
        "nvme",
    ),
    *(
        "none",
        "bf16",
        "fp32",
        "x",
        [],
        ["a"],
        [1],
        {},
        {"enabled": True},
        {"a": 1},
        "Warn",
        "mean",
        "sum",
        16,
    ),
]
STRAY = (
    "bogus",
    "stage3_param_persitance_threshold",
    "buffer_size",
    "strict",
    "offload_optimizer",
    "max_grad_norm",
)
UNREAD: list[Any] = [
    {},
    {"enabled": True},
    {"results_dir": ""},
    {"load_balance_coeff": 1},
    {"data_sampling": {"curriculum_learning": {"enabled": True}}},
    {"data_sampling": {"dynamic_batching": {"enabled": True, "max_tokens": "x"}}},
]


def config(seed: int, wrong: float) -> dict[str, Any]:
    """One config; `wrong` is how often a value is drawn from what is odd."""
    return _Maker(random.Random(seed), wrong).config()


class _Maker:
    def __init__(self, dice: random.Random, wrong: float) -> None:
        self.dice, self.wrong = dice, wrong

    def odd(self) -> Any:
        return json.loads(json.dumps(self.dice.choice(ODD)))

    def value(self, key: Key) -> Any:
        if self.dice.random() < self.wrong:
            return self.odd()
        name, values = key.kind.name, [key.default]
        if name.startswith("true"):
            values += [True, False]
        elif "whole" in name:
            values += [0, 1, 2, 10, 1_000_000, 5e8]
        elif name.startswith("number"):
            values += [0, 0.5, 1.0]
        elif name == "0, 1, 2 or 3":
            values = [0, 1, 2, 3, 3, 3]
        elif " or " in name:
            values += [word for word in name.split(" or ") if word != "null"]
        elif name in ("text", "path"):
            values += ["/x", "y"]
        return json.loads(json.dumps(self.dice.choice(values)))

    def section(self, path: str) -> dict[str, Any]:
        keys = list(SECTIONS[path].keys)
        made: dict[str, Any] = {}
        for key in self.dice.sample(keys, min(self.dice.choice([0, 1, 2, 3, 5, 8]), len(keys))):
            name = key.other if key.other and self.dice.random() < 0.2 else key.name
            nested = key.section in SECTIONS and key.section and self.dice.random() < 0.85
            made[name] = self.section(key.section) if nested else self.value(key)
        if self.dice.random() < self.wrong / 3:
            made[self.dice.choice(STRAY)] = self.odd()
        return made

    def config(self) -> dict[str, Any]:
        dice, made = self.dice, dict[str, Any]()
        if dice.random() < 0.9:
            made["train_micro_batch_size_per_gpu"] = dice.choice([1, 2, 4, 2.0])
        if dice.random() < 0.2:
            made["train_batch_size"] = dice.choice([4, 8, 16, 32, 10, self.odd()])
        if dice.random() < 0.2:
            made["gradient_accumulation_steps"] = dice.choice([1, 2, 4, self.odd()])
        top = SECTIONS[""].keys
        for key in dice.sample([key for key in top if key.section], dice.choice([0, 1, 1, 2, 3])):
            made[key.name] = self._top(key)
        if dice.random() < 0.6:
            made["zero_optimization"] = self.section("zero_optimization")
        plain = [
            k for k in top if not k.section and not k.name.startswith(("train_", "gradient_acc", "sequence"))
        ]
        for key in dice.sample(plain, dice.choice([0, 1, 2])):
            made[key.name] = self.value(key)
        if isinstance(made.get("aio"), dict):
            made["aio"].pop("use_gds", None)  # asks for CUDA
        return made

    def _top(self, key: Key) -> Any:
        if self.dice.random() < self.wrong:
            return self.odd()
        if key.section in SECTIONS:
            return self.section(key.section)
        if key.name == "timers":
            return {"throughput": self.section("timers.throughput")}
        return self.dice.choice(UNREAD)
