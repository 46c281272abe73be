"""Every rule by its code: one table, in the order of the codes."""

from __future__ import annotations

from itertools import chain

from ziplan.check.finding import Rule
from ziplan.check.rules.capacity import CAPACITY
from ziplan.check.rules.fatal import FATAL
from ziplan.check.rules.gates import GATES
from ziplan.check.rules.held import HELD
from ziplan.check.rules.keys import KEYS
from ziplan.check.rules.needless import NEEDLESS
from ziplan.check.rules.optimizers import OPTIMIZERS
from ziplan.check.rules.physics import PHYSICS
from ziplan.check.rules.provenance import PROVENANCE
from ziplan.check.rules.settings import SETTINGS
from ziplan.check.rules.streaming import STREAMING
from ziplan.check.rules.swapping import SWAPPING
from ziplan.check.rules.waits import WAITS

CHAPTERS = (
    *(CAPACITY, HELD, SWAPPING),
    *(STREAMING, WAITS, NEEDLESS),
    *(KEYS, FATAL, OPTIMIZERS, SETTINGS),
    *(PHYSICS, PROVENANCE, GATES),
)

RULES: dict[str, Rule] = {rule.code: rule for rule in sorted(chain(*CHAPTERS), key=lambda rule: rule.code)}
"""Code to rule."""
