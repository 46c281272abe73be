"""Measured over predicted step time by runtime and kind of run: (scored runs, low end, high end).

Written by docs/generate.py from the shipped measurements; what the numbers are for is in
`ziplan.estimate.fidelity`.
"""

from __future__ import annotations

RESIDUALS: dict[str, dict[str, tuple[int, float, float]]] = {
    "deepspeed": {
        "nothing offloaded": (34, 0.955, 2.72),
        "optimizer on the host": (19, 1.14, 1.94),
        "parameters and optimizer on the host": (4, 2.19, 2.47),
        "NVMe": (4, 0.646, 1.06),
    },
}
