"""ZP211 and ZP212: offload that nothing needs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ziplan.check.case import Case
from ziplan.check.finding import Hit, Number, Rule
from ziplan.check.rules.waits import stepped
from ziplan.estimate import Estimate

WORTH = 1.02
"""Factor in time per token from which on another placement is worth a word."""


def needless_offload(case: Case) -> Iterator[Hit]:
    """The same job fits without what is offloaded, and is faster."""
    best, gain = case.best, _gain(case)
    if best is None or gain < WORTH or not case.off_gpu() or best.verdict != "fits" or _off_gpu(best):
        return
    yield Hit(
        f"nothing needs to leave the GPU: ZeRO stage {best.plan.zero_stage:.0f} with micro-batch "
        f"{best.plan.micro_batch_size:.0f} fits, and a token takes {1 / gain:.0%} of the time",
        key="zero_optimization.offload_optimizer",
        field="placement",
        fix="`ziplan fit` writes that config",
        number=Number(gain),
    )


def needless_nvme(case: Case) -> Iterator[Hit]:
    """NVMe is used, and host memory would do."""
    best, gain, nvme = case.best, _gain(case), case.nvme
    if best is None or gain < WORTH or not nvme or nvme not in case.off_gpu():
        return
    if best.verdict != "fits" or not _off_gpu(best) or nvme in _off_gpu(best):
        return
    yield Hit(
        "NVMe is not needed: host memory holds what does not fit on the GPUs, and a token takes "
        f"{1 / gain:.0%} of the time",
        key="zero_optimization.offload_optimizer.device",
        field="placement",
        fix='"device": "cpu"; `ziplan fit` writes that config',
        number=Number(gain),
    )


def _gain(case: Case) -> float:
    """How much faster a token is under the best plan; 0 where one of the two times is unknown."""
    if case.best is None or case.estimate is None or not stepped(case):
        return 0.0
    gain = case.estimate.time_per_token / case.best.time_per_token
    return gain if math.isfinite(gain) else 0.0


def _off_gpu(estimate: Estimate) -> set[str]:
    """Tiers outside the GPU that hold anything of a plan."""
    placement, gpu = estimate.plan.placement, estimate.cluster.node.gpu_tier
    homes = (placement.params, placement.grads, placement.optimizer, placement.checkpoints)
    return {name for home in homes for name, share in home.items() if share > 0 and name != gpu}


NEEDLESS = (
    Rule(
        "ZP211",
        "Stage 3 is enough",
        "warning",
        needless_offload,
        "The best plan for the same batch keeps everything in GPU memory, and is faster by 2 % or more.",
        "Offload trades time for memory that is not lacking: 17 of 200 public cases had paid for it in vain.",
        "gpt2-xl with optimizer and parameters on the CPU of a DGX A100",
        "Leave the offload sections out.",
    ),
    Rule(
        "ZP212",
        "Host memory is enough",
        "warning",
        needless_nvme,
        "State is on NVMe, and the best plan for the same batch fits without it.",
        "NVMe is an order slower than DRAM, and every step wears it.",
        "a 13B model with the optimizer on NVMe beside 2 TiB of DRAM",
        '"device": "cpu".',
    ),
)
