"""Companions beside a toy: models as large as it, or given ones, in each role."""

from __future__ import annotations

from dataclasses import replace

from ziplan.workload.companions import ONE_VALUE, TRAINED, Companion, untrained, with_one_value

ROLES = ("reference", "teacher", "critic", "reward")


def beside(role, model, activations, trained=None, offload="auto"):
    """A companion without a config of its own."""
    model = with_one_value(model) if role in ONE_VALUE else model
    trains = role in TRAINED if trained is None else trained
    return Companion(role, role, model if trains else untrained(model), "all", offload, activations)


def with_companions(work, roles=ROLES, offload="auto"):
    """A workload with a companion of each role, of the model itself."""
    made = [beside(role, work.model, work.activations, offload=offload) for role in roles]
    return replace(work, companions=tuple(made))
