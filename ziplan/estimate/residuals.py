"""Measured over predicted step time by runtime and kind of run: (runs of a release, low end, high end).

Written by docs/generate.py from the shipped measurements; what the numbers are for is in
`ziplan.estimate.fidelity`.
"""

from __future__ import annotations

RESIDUALS: dict[str, dict[str, tuple[int, float, float]]] = {
    "deepspeed": {
        "nothing offloaded": (130, 0.897, 1.41),
        "optimizer on the host": (49, 0.904, 1.38),
        "parameters and optimizer on the host": (5, 1.15, 2.54),
        "NVMe": (2, 0.874, 0.889),
    },
    "fsdp": {
        "parameters and optimizer on the host": (14, 0.977, 2.8),
        "nothing offloaded": (82, 0.908, 1.13),
    },
    "megatron": {
        "nothing offloaded": (95, 0.786, 1.36),
        "parameters and optimizer on the host": (1, 0.914, 0.914),
        "optimizer on the host": (3, 0.85, 1.17),
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
