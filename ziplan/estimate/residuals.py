"""Measured over predicted step time by runtime and kind of run: (scored runs, low end, high end).

Written by docs/generate.py from the shipped measurements; what the numbers are for is in
`ziplan.estimate.fidelity`.
"""

from __future__ import annotations

RESIDUALS: dict[str, dict[str, tuple[int, float, float]]] = {
    "deepspeed": {
        "nothing offloaded": (26, 0.956, 2.04),
        "optimizer on the host": (26, 0.931, 1.24),
        "parameters and optimizer on the host": (4, 1.2, 1.49),
        "NVMe": (4, 0.885, 1.02),
    },
    "fsdp": {
        "nothing offloaded": (75, 0.886, 1.14),
    },
    "megatron": {
        "nothing offloaded": (83, 0.776, 1.61),
        "NVMe": (3, 1.12, 1.34),
        "optimizer on the host": (1, 1.28, 1.28),
    },
}
