"""A group of commands whose `show` may be left out: `ziplan models gpt2` is `ziplan models show gpt2`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class Showing(TyperGroup):
    """The group; what is no command of it is what `show` is asked for."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the words begin with, else `show` and all of them."""
        return super().resolve_command(ctx, args if args[0] in self.commands else ["show", *args])
