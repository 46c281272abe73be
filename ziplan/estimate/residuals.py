"""Measured over predicted step time by runtime and kind of run: (scored runs, low end, high end).

Written by docs/generate.py from the shipped measurements; what the numbers are for is in
`ziplan.estimate.fidelity`.
"""

from __future__ import annotations

RESIDUALS: dict[str, dict[str, tuple[int, float, float]]] = {
    "deepspeed": {
        "nothing offloaded": (42, 0.901, 2.12),
        "optimizer on the host": (19, 1.23, 1.71),
        "parameters and optimizer on the host": (4, 2.07, 2.57),
        "NVMe": (4, 0.681, 1.03),
    },
}
