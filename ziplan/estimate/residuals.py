"""Measured over predicted step time by runtime and kind of run: (runs of a release, low end, high end).

Written by docs/generate.py from the shipped measurements; what the numbers are for is in
`ziplan.estimate.fidelity`.
"""

from __future__ import annotations

RESIDUALS: dict[str, dict[str, tuple[int, float, float]]] = {
    "deepspeed": {
        "nothing offloaded": (135, 0.904, 1.43),
        "optimizer on the host": (50, 0.884, 1.23),
        "NVMe": (6, 0.878, 1.05),
        "parameters and optimizer on the host": (10, 1.06, 1.5),
    },
    "fsdp": {
        "parameters and optimizer on the host": (14, 0.877, 2.78),
        "nothing offloaded": (82, 0.912, 1.11),
    },
    "megatron": {
        "nothing offloaded": (95, 0.791, 1.37),
        "parameters and optimizer on the host": (1, 0.916, 0.916),
        "optimizer on the host": (3, 0.855, 1.17),
    },
}

OWN_SOURCE: dict[str, dict[str, int]] = {
    "deepspeed": {
        "nothing offloaded": 8,
        "optimizer on the host": 1,
        "NVMe": 4,
    },
    "fsdp": {
        "nothing offloaded": 75,
    },
}
"""Of these, runs of a page that a parameter was taken from, off another run of it."""
