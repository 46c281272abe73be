"""Measured over predicted step time by runtime and kind of run: (scored runs, low end, high end).

Written by docs/generate.py from the shipped measurements; what the numbers are for is in
`ziplan.estimate.fidelity`.
"""

from __future__ import annotations

RESIDUALS: dict[str, dict[str, tuple[int, float, float]]] = {
    "deepspeed": {
        "nothing offloaded": (44, 0.972, 3.16),
        "optimizer on the host": (19, 1.27, 1.77),
        "parameters and optimizer on the host": (4, 2.02, 2.57),
        "NVMe": (4, 0.669, 1.01),
    },
}
