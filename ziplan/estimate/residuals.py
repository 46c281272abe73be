"""Measured over predicted step time by runtime and kind of run: (scored runs, low end, high end).

Written by docs/generate.py from the shipped measurements; what the numbers are for is in
`ziplan.estimate.fidelity`.
"""

from __future__ import annotations

RESIDUALS: dict[str, dict[str, tuple[int, float, float]]] = {
    "deepspeed": {
        "optimizer on the host": (32, 1.11, 2.81),
        "nothing offloaded": (47, 0.91, 2.26),
        "parameters and optimizer on the host": (4, 1.35, 1.6),
        "NVMe": (4, 0.748, 1.03),
    },
    "fsdp": {
        "nothing offloaded": (54, 0.82, 1.11),
    },
    "megatron": {
        "nothing offloaded": (68, 0.983, 1.72),
    },
}
