"""Measured over predicted step time by runtime and kind of run: (runs of a release, low end, high end).

Written by docs/generate.py from the shipped measurements; what the numbers are for is in
`ziplan.estimate.fidelity`.
"""

from __future__ import annotations

RESIDUALS: dict[str, dict[str, tuple[int, float, float]]] = {
    "deepspeed": {
        "nothing offloaded": (77, 0.838, 1.9),
        "optimizer on the host": (37, 0.929, 2.16),
        "parameters and optimizer on the host": (5, 1.2, 2.64),
        "NVMe": (2, 0.884, 0.9),
    },
    "fsdp": {
        "parameters and optimizer on the host": (3, 0.972, 1.35),
        "nothing offloaded": (82, 0.9, 1.13),
    },
    "megatron": {
        "nothing offloaded": (95, 0.788, 1.41),
        "optimizer on the host": (1, 1.16, 1.16),
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
