"""`ziplan explain --error`: a failed allocation, read back to what asked for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ziplan.check.allocations import causes, failed
from ziplan.cli.check_inputs import Asked, case_of
from ziplan.cli.output import width
from ziplan.errors import BadInput

if TYPE_CHECKING:
    from ziplan.cli.given import Given
    from ziplan.report.lines import Line


def explained(text: str, words: list[str], given: Given) -> list[Line]:
    """Everything in a config's plan that is of the size that a message has."""
    from ziplan.report.allocations import allocation_text

    if len(words) != 3:
        raise BadInput.of(
            f"expected MODEL CLUSTER CONFIG with --error, not {len(words)} arguments",
            help="as in `ziplan explain --error 'Tried to allocate 12.9 GiB' llama-2-13b dgx-2 ds.json`",
        )
    asked = failed(text)
    if asked is None:
        raise BadInput.of(
            f"--error {text!r:.80} names no size",
            help="it is in `Tried to allocate 12.94 GiB`, or in `More elements N than buffer size M`",
        )
    model, cluster, config = words
    case = case_of(Path(config), Asked(given.on(model, cluster)))
    if case.plan is None:
        raise BadInput.of("the config comes to no plan", file=config, help="`ziplan check` says why")
    return allocation_text(case, asked, causes(case, asked), width())
