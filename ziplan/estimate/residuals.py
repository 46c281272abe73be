"""Measured over predicted step time by runtime and kind of run: (runs of a release, low end, high end).

Written by docs/generate.py from the shipped measurements; what the numbers are for is in
`ziplan.estimate.fidelity`.
"""

from __future__ import annotations

RESIDUALS: dict[str, dict[str, tuple[int, float, float]]] = {
    "deepspeed": {
        "nothing offloaded": (130, 0.912, 1.59),
        "optimizer on the host": (49, 0.931, 1.52),
        "parameters and optimizer on the host": (5, 1.16, 2.59),
        "NVMe": (2, 0.877, 0.892),
    },
    "fsdp": {
        "parameters and optimizer on the host": (14, 1, 3.12),
        "nothing offloaded": (82, 0.908, 1.13),
    },
    "megatron": {
        "nothing offloaded": (95, 0.788, 1.39),
        "parameters and optimizer on the host": (1, 0.915, 0.915),
        "optimizer on the host": (3, 0.856, 1.18),
    },
}

OWN_SOURCE: dict[str, dict[str, int]] = {
    "deepspeed": {
        "nothing offloaded": 8,
    },
    "fsdp": {
        "nothing offloaded": 75,
    },
}
"""Of these, runs of a page that a parameter was taken from, off another run of it."""
