"""Every rule by its code: one table, in the order of the codes."""

from __future__ import annotations

from ziplan.check.finding import Rule
from ziplan.check.rules.capacity import CAPACITY
from ziplan.check.rules.fatal import FATAL
from ziplan.check.rules.gates import GATES
from ziplan.check.rules.keys import KEYS
from ziplan.check.rules.physics import PHYSICS
from ziplan.check.rules.provenance import PROVENANCE
from ziplan.check.rules.settings import SETTINGS
from ziplan.check.rules.stalls import STALLS

RULES: dict[str, Rule] = {
    rule.code: rule for rule in (*CAPACITY, *STALLS, *KEYS, *FATAL, *SETTINGS, *PHYSICS, *PROVENANCE, *GATES)
}
"""Code to rule."""
