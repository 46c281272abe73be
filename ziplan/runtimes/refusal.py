"""Why a runtime cannot run a plan, with the key of a plan.yaml that it is about and the way out."""

from __future__ import annotations

from collections.abc import Sequence

from ziplan.errors import BadInput
from ziplan.plan import Plan

OPTIMIZER = ("planned_for", "optimizer")
MASTER_PRECISION = ("planned_for", "master_precision")
PRECISION = ("planned_for", "precision")
"""Keys of the training that a plan was made for."""


class Refusal(str):
    """A reason, as a sentence; `path` is the key of a plan.yaml that it is about, `help` what to do."""

    path: tuple[str, ...]
    help: str

    def __new__(cls, reason: str, *path: str, help: str) -> Refusal:
        """A reason with the key that it is about."""
        made = super().__new__(cls, reason)
        made.path, made.help = path, help
        return made


def misplaced(reason: str, state: str, *tiers: str | None, otherwise: str = "") -> Refusal:
    """A reason that is about where a kind of state lives: it can be all on one of these tiers."""
    homes = " or ".join(f"{{{tier}: 1.0}}" for tier in tiers if tier)
    return Refusal(reason, "placement", state, help=f"placement.{state}: {homes}{otherwise}")


def cannot_run(name: str, reasons: Sequence[Refusal], code: str = "ZP001") -> BadInput:
    """The error of a runtime that cannot run what no file states as a plan."""
    ways_out = "; ".join(dict.fromkeys(reason.help for reason in reasons))
    return BadInput.of(f"{name} cannot run this: {'; '.join(reasons)}", code=code, help=ways_out)


def undivided(plan: Plan) -> list[Refusal]:
    """Why a runtime that divides no model cannot run a plan that does."""
    divided = [key for key in ("tp_degree", "pp_degree", "vpp_degree") if getattr(plan, key) != 1]
    if not divided:
        return []
    reason = "tensor and pipeline parallelism are not part of this runtime: use degree 1"
    ways_out = ", ".join(f"{key}: 1" for key in divided)
    return [Refusal(reason, divided[0], help=f"{ways_out}, or runtime: megatron")]
