"""The article's runtime: 16 bytes per parameter, two climbs of the parameters, perfect overlap."""

from ziplan.runtimes.ideal.model import axes, emit, ledger, program, refusals, settle

NAME = "ideal"
VERSION = "article"
SWAP_LIMIT = None
SWAP_LIMIT_SOURCE = ""

__all__ = [
    "NAME",
    "SWAP_LIMIT",
    "SWAP_LIMIT_SOURCE",
    "VERSION",
    "axes",
    "emit",
    "ledger",
    "program",
    "refusals",
    "settle",
]
