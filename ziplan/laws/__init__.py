"""Laws: pure one-expression functions of quantities, each with its source.

Importing the package enters every law of the article and of the paper in `law.LAWS`; the
laws of a runtime live in that runtime's folder and enter when it is imported.
"""

from ziplan.laws import (
    ceilings,
    contention,
    counts,
    efficiency,
    endurance,
    host,
    intensity,
    memory,
    optimizer,
    partition,
    prefetch,
    tiling,
    traffic,
)

__all__ = [
    "ceilings",
    "contention",
    "counts",
    "efficiency",
    "endurance",
    "host",
    "intensity",
    "memory",
    "optimizer",
    "partition",
    "prefetch",
    "tiling",
    "traffic",
]
