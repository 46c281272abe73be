"""DeepSpeed: ZeRO stages 0 to 3, offload to CPU and NVMe, as its source does it.

What is true of the version named here was read from its source and met by running it.
"""

from __future__ import annotations

from ziplan.runtimes.deepspeed.config import emit
from ziplan.runtimes.deepspeed.memory import ledger
from ziplan.runtimes.deepspeed.releases import NAME, VERSION
from ziplan.runtimes.deepspeed.space import axes, homes, refusals, settle
from ziplan.runtimes.deepspeed.traffic import program
from ziplan.runtimes.played import played_by

SWAP_LIMIT = 6.2e9
"""Bytes per second that one process swaps between DRAM and NVMe at the most, whatever the drives.

Published step times give 6.2 to 6.3 GB/s with 6 to 10 drives and 4e9 to 33e9 parameters (arXiv:2403.06664
figures 9 and 10, 28 bytes per parameter over the optimizer's time): the limit is the software's. Four
processes that swapped 5.7 to 6.3 GB/s together (https://github.com/DataStates/artifacts, MLP-Offload/logs)
had one drive's rates, in turn, and say nothing of it.
"""

SWAP_LIMIT_SOURCE = "arXiv:2403.06664 figures 9 and 10: one process, 6 to 10 drives"


step_schedule = played_by(__name__, "DeepSpeed fetches as its coordinator does")

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
    "settle",
    "step_schedule",
]
