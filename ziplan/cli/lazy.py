"""A group of commands whose modules are imported when they are run, not when they are listed."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

COMMANDS: dict[str, str] = {
    "fit": "Plan a training run: whether it fits, where, and how fast.",
    "check": "Judge a config: does it fit, does it stall, what in it is ignored or wrong.",
    "simulate": "Play one training step: what waits for what, how busy each link is.",
    "limits": "The three ceilings on a model's size, and the training time.",
    "sweep": "Every point of a grid of inputs, and those that no other one beats.",
    "compare": "Clusters side by side: time, cost, what binds, offload or buy.",
    "diff": "What two plans or configs differ in, and what that changes.",
    "report": "Everything about one plan on one page, with charts.",
    "explain": "How a number comes about: the article's figures, or one law.",
    "calibrate": "What your machine really delivers, fitted from your own runs on it.",
    "validate": "Predictions held against measured runs, with the error of each.",
    "bench": "Measure what this node delivers, as a machine file.",
    "profiles": "Shipped machines and parts, each value with its source.",
    "models": "Shipped model shapes, operator by operator.",
    "schema": "JSON Schema of a file ziplan reads or a document it writes.",
    "init": "Write a commented model.yaml and cluster.yaml to start from.",
}
"""Command name to its line of help; the command lives in the module of that name."""


def loaded(name: str) -> Any:
    """The command called `name`, from its module."""
    app: typer.Typer = import_module(f"ziplan.cli.{name}").app
    command: Any = typer.main.get_command(app)
    command.name = name
    return command


class Commands(MutableMapping[str, Any]):
    """The table of commands as the mapping that a group expects; reading an entry imports it."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        if name not in self._loaded:
            self._loaded[name] = loaded(name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class LazyGroup(TyperGroup):
    """The `ziplan` command itself; its help is printed from the table alone."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The table of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))
