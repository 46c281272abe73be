"""Training runtimes: what each really does with bytes, one folder a runtime."""

from __future__ import annotations

from typing import cast

from ziplan.runtimes import deepspeed, ideal
from ziplan.runtimes.runtime import Runtime

RUNTIMES: dict[str, Runtime] = {
    "deepspeed": cast(Runtime, deepspeed),
    "ideal": cast(Runtime, ideal),
}
"""Every runtime by name."""
