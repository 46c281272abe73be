"""Everything that a report tells of one plan, gathered: answers of the solver, the checker, the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ziplan.check.run import Checked
from ziplan.estimate import Estimate
from ziplan.report.margin_map import MarginMap
from ziplan.report.simulation import Told
from ziplan.solve.problem import Answer
from ziplan.solve.relief import Relief


class Dossier(NamedTuple):
    """One plan and what is known of it.

    `estimate` is of the plan that the report is about: the config's where one is given, else the best
    one. `absent` says of a part that is None why it is: "checked", "played", "margins".
    """

    answer: Answer
    estimate: Estimate
    checked: Checked | None
    played: Told | None
    margins: MarginMap | None
    reliefs: tuple[Relief, ...]
    command: str
    """The command line that makes this report again."""
    inputs: Mapping[str, str]
    """Name to text of the files that were read and of those that run the plan."""
    config: str = ""
    """Name of the config that was given; empty where the plan is ziplan's own."""
    absent: Mapping[str, str] = {}

    @property
    def verdict(self) -> str:
        """The verdict on the config that was given, else on the best plan."""
        return self.checked.verdict if self.config and self.checked is not None else self.estimate.verdict
