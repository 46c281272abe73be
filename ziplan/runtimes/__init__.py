"""Training runtimes: what each really does with bytes, one folder a runtime."""

from __future__ import annotations

from typing import cast

from ziplan.runtimes import deepspeed, fsdp, ideal
from ziplan.runtimes.runtime import Runtime

RUNTIMES: dict[str, Runtime] = {
    "deepspeed": cast(Runtime, deepspeed),
    "fsdp": cast(Runtime, fsdp),
    "ideal": cast(Runtime, ideal),
}
"""Every runtime by name."""
