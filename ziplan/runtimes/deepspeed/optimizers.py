"""The optimizers that DeepSpeed can be asked for, and what each keeps of a flat shard.

ZeRO steps one flat tensor for a sub-group (stage 3) or a rank's shard (stages 1 and 2), so that no
optimizer sees a matrix: Adafactor keeps a second moment for every element and factors nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ziplan.runtimes.refusal import MASTER_PRECISION, PRECISION, Refusal
from ziplan.workload.optimizers import QUANTIZED_BYTES, OptimizerName


@dataclass(frozen=True)
class Supported:
    """One optimizer; bytes are those of its state per parameter, master weights aside."""

    config_type: str | None
    """`optimizer.type` in the config; None where train.py has to make it."""
    on_gpu: float
    on_host: float | None
    """None where DeepSpeed has no CPU optimizer for it."""
    tested: bool
    """Whether DeepSpeed takes it without `zero_allow_untested_optimizer`."""
    moved_on_host: float = 0.0
    """Bytes of the state on the host that the update reads and writes."""
    temporaries: tuple[float, float] = (0.0, 0.0)
    """Bytes per parameter of a step that its update makes on the GPU and drops again."""
    source: str = ""


OPTIMIZERS: Mapping[OptimizerName, Supported] = {
    "adamw": Supported("AdamW", 8.0, 8.0, True, 8.0, source="ops/adam/fused_adam.py, cpu_adam.py"),
    "lion": Supported(
        "Lion",
        4.0,
        8.0,
        True,
        4.0,
        source="ops/lion/fused_lion.py; cpu_lion.py makes a second moment that it never uses",
    ),
    "sgd": Supported(
        "SGD",
        0.0,
        None,
        False,
        temporaries=(0.0, 4.0),
        source="torch/optim/sgd.py: weight decay copies the gradient",
    ),
    "adafactor": Supported(
        "Adafactor",
        4.0,
        None,
        False,
        temporaries=(4.0, 8.0),
        source="torch/optim/_adafactor.py: `variance` of what is no matrix",
    ),
    "adamw_8bit": Supported(
        None, QUANTIZED_BYTES, None, False, source="bitsandbytes: kernels of the GPU only"
    ),
}
"""By name; sources are those of DeepSpeed 0.19.8 and torch 2.13."""


def refused(kind: OptimizerName, zero_stage: int, off_gpu: bool, on_both: bool) -> list[Refusal]:
    """Why DeepSpeed cannot run an optimizer where the plan wants it."""
    reasons = []
    if off_gpu and OPTIMIZERS[kind].on_host is None:
        said = f"{kind} cannot be offloaded: DeepSpeed steps on the host with its own CPU Adam and CPU Lion"
        reasons.append(Refusal(said, *PLACED, help=f"all of {'.'.join(PLACED)} on the GPU, or {ADAMW}"))
    if on_both and kind != "adamw":
        said = f"an optimizer on the GPU and on the host (`ratio`) is AdamW's alone, not {kind}'s"
        reasons.append(Refusal(said, *PLACED, help=f"one tier for {'.'.join(PLACED)}, or {ADAMW}"))
    if zero_stage < 1 and kind != "adamw":
        said = f"{kind} is planned from zero_stage 1 on: below it another wrapper steps the parameters"
        reasons.append(Refusal(said, "zero_stage", help=f"zero_stage: 1, or {ADAMW}"))
    return reasons


PLACED = ("placement", "optimizer")
ADAMW = "--optimizer adamw"


def bf16_refused(
    kind: OptimizerName, precision: str, zero_stage: int, swapped: bool, on_both: bool
) -> list[Refusal]:
    """Why DeepSpeed cannot keep master weights and moments in bf16 under a plan."""
    what, else_fp32, reasons = "master weights in bf16", "or training.master_precision: fp32", []
    if precision != "bf16":
        said = f"{what} need training in bf16, not {precision}"
        reasons.append(Refusal(said, *PRECISION, help=f"--precision bf16, {else_fp32}"))
    if zero_stage < 1:
        said = f"{what} need zero_stage 1 or higher"
        reasons.append(Refusal(said, "zero_stage", help=f"zero_stage: 1 or higher, {else_fp32}"))
    if kind != "adamw":
        said = f"{what} are planned with adamw, not {kind}"
        reasons.append(Refusal(said, *MASTER_PRECISION, help=f"{ADAMW}, {else_fp32}"))
    if swapped:
        said = f"{what} cannot be swapped to NVMe: DeepSpeed 0.19.8 asserts in its first step"
        reasons.append(Refusal(said, *PLACED, help=f"{'.'.join(PLACED)} on the host, {else_fp32}"))
    if on_both:
        said = f"{what} are on the GPU or on the host, not on both"
        reasons.append(Refusal(said, *PLACED, help=f"one tier for {'.'.join(PLACED)}, {else_fp32}"))
    return reasons
