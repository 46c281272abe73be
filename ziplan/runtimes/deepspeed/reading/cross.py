"""What `DeepSpeedConfig` checks between keys, after each has been read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ziplan.runtimes.deepspeed.reading.kinds import written
from ziplan.runtimes.deepspeed.reading.remarks import Notes
from ziplan.runtimes.deepspeed.reading.walk import Values
from ziplan.units import figure


def check_together(data: Mapping[str, Any], values: Values, notes: Notes) -> None:
    """Note every pair of keys that DeepSpeed refuses together, and settle what one decides for another."""
    _zero(values["zero_optimization"], notes)
    _loss_scale(values["fp16"], notes)
    _precisions(values, notes)
    _sum(data, values, notes)


def _zero(zero: Values, notes: Notes) -> None:
    """`zero/config.py`: the validators that run after the fields."""
    stage, optimizer = zero["stage"], zero["offload_optimizer"]
    if zero["overlap_comm"] is None:
        zero["overlap_comm"] = stage == 3
    if not zero["compute_grad_norm"] and stage not in (1, 2):
        message = f"compute_grad_norm: false is for stages 1 and 2, not {stage}"
        notes.add("rejected", ("zero_optimization", "compute_grad_norm"), message, "leave it out")
    if optimizer and optimizer["ratio"] < 1 and stage != 3:
        notes.add(
            "rejected",
            ("zero_optimization", "offload_optimizer", "ratio"),
            f"ratio: {figure(optimizer['ratio'])} offloads a part, which is for stage 3, not {stage}",
            "leave it out, or use stage 3",
        )


def _loss_scale(fp16: Values, notes: Notes) -> None:
    """`precision_config.py:_validate_dynamic_loss_scale_params`."""
    if not fp16["enabled"] or fp16["loss_scale"] != 0:
        return
    for name in ("loss_scale_window", "min_loss_scale"):
        if fp16[name] <= 0:
            message = f"{name}: must be more than 0 where the loss scale is found, not {written(fp16[name])}"
            notes.add("rejected", ("fp16", name), message, "write a number of more than 0")


def _precisions(values: Values, notes: Notes) -> None:
    fp16, bf16, stage = values["fp16"], values["bf16"], values["zero_optimization"]["stage"]
    if fp16["enabled"] and bf16["enabled"]:
        notes.add("rejected", ("fp16", "enabled"), "fp16 and bf16 are both enabled", "keep one")
    states = "bf16_optimizer_states"
    for section, name in (
        ("fp16", "fp16_master_weights_and_grads"),
        ("bf16", "bf16_master_weights_and_grads"),
        ("bf16", states),
    ):
        if values[section][name] and stage == 0:
            notes.add("rejected", (section, name), f"{name}: needs ZeRO stage 1, 2 or 3", "leave it out")
    if bf16[states] and not bf16["bf16_master_weights_and_grads"]:
        notes.add(
            "rejected",
            ("bf16", states),
            f"{states}: needs bf16_master_weights_and_grads",
            "turn both on, or none",
        )


def _sum(data: Mapping[str, Any], values: Values, notes: Notes) -> None:
    """`_do_error_check`: a sum of gradients is not made everywhere."""
    reduction = data.get("gradient_allreduce_op")
    if not isinstance(reduction, str) or reduction.lower() != "sum":
        return
    zero = values["zero_optimization"]
    for holds, where in (
        (zero["stage"] == 3, "stage 3"),
        (zero["zenflow"] is not None, "ZenFlow"),
        (values["compile"]["deepcompile"], "DeepCompile"),
    ):
        if holds:
            notes.add(
                "rejected",
                ("gradient_allreduce_op",),
                f"gradient_allreduce_op: {where} cannot sum",
                "leave it out",
            )
