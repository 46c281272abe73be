"""How many clusters a second a sweep solves on one core, input included: `python benchmarks/sweep.py`."""

from __future__ import annotations

import sys
import time
from functools import partial

from ziplan.cli.inputs import Request
from ziplan.cli.varied import posed
from ziplan.study.axes import axes_of
from ziplan.study.sweep import swept

LEAST_PER_S = 1000 / 30
"""Points solved in a second: 1,000 within half a minute."""

GRIDS = {
    "llama-3.1-70b on DGX A100s": (
        Request("llama-3.1-70b", "dgx-a100-80g", training={"sequence_length": 4096}),
        ("nodes=1..16", "tiers.nvme.drive_count=1..8:1", "tiers.dram.capacity=256 GiB..4 TiB"),
    ),
    "llama-3.1-8b on a desktop, batches and sequences": (
        Request("llama-3.1-8b", "rtx-4090-desktop", training={"global_batch_size": 64}),
        ("training.micro_batch_size=1..64", "training.sequence_length=1024..8192", "nodes=1"),
    ),
}


def main() -> int:
    enough = True
    for name, (request, axes) in GRIDS.items():
        begin = time.process_time()
        found = swept(partial(posed, request), axes_of(axes), jobs=1)
        rate = len(found.rows) / (time.process_time() - begin)
        enough = enough and rate >= LEAST_PER_S
        size = f"{len(found.rows):,} points, {len(found.front):,} on the front"
        print(f"{rate:6.0f} points/s on one core  {size}  {name}")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
