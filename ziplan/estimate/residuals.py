"""Measured over predicted step time by runtime and kind of run: (runs of a release, low end, high end).

Written by docs/generate.py from the shipped measurements; what the numbers are for is in
`ziplan.estimate.fidelity`.
"""

from __future__ import annotations

RESIDUALS: dict[str, dict[str, tuple[int, float, float]]] = {
    "deepspeed": {
        "optimizer on the host": (32, 0.934, 2.08),
        "nothing offloaded": (25, 0.956, 2.06),
        "parameters and optimizer on the host": (4, 1.2, 1.49),
    },
    "fsdp": {
        "nothing offloaded": (75, 0.898, 1.13),
    },
    "megatron": {
        "nothing offloaded": (83, 0.772, 1.43),
        "optimizer on the host": (1, 1.27, 1.27),
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
