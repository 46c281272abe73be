"""The article's runtime: 16 bytes per parameter, two climbs of the parameters, perfect overlap."""

from __future__ import annotations

from ziplan.runtimes.ideal.model import axes, emit, homes, ledger, program, refusals, settle
from ziplan.runtimes.played import played_by

NAME = "ideal"
VERSION = "article"
SWAP_LIMIT = None
SWAP_LIMIT_SOURCE = ""


step_schedule = played_by(__name__)

__all__ = [
    "NAME",
    "SWAP_LIMIT",
    "SWAP_LIMIT_SOURCE",
    "VERSION",
    "axes",
    "emit",
    "homes",
    "ledger",
    "program",
    "refusals",
    "step_schedule",
    "settle",
]
