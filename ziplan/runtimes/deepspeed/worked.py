"""What is computed at each visit to a module: forward, recomputation or backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from ziplan.plan import Checkpointing
from ziplan.runtimes.deepspeed.visits import Visit


class Swept(Protocol):
    """What a module computes in each sweep."""

    @property
    def forward(self) -> float:
        """In forward."""

    @property
    def recompute(self) -> float:
        """Again, before backward."""

    @property
    def backward(self) -> float:
        """In backward."""


class Products:
    """The same in parameters that multiply each token: as many again for each gradient of backward."""

    def __init__(self, visit: Visit, checkpointing: int) -> None:
        self.forward = float(sum(operator.matmul_params for operator, _ in visit.parts))
        again = checkpointing == Checkpointing.FULL and all(operator.block for operator, _ in visit.parts)
        self.recompute = self.forward * again
        self.backward = self.forward + sum(operator.matmul_params for operator in visit.trained)


def computed(order: Sequence[Visit], modules: Sequence[Swept], forward: int) -> list[tuple[str, float]]:
    """(sweep, work) of every visit: the last one after forward is backward's, one before it recomputes.

    `forward` is how many visits forward makes.
    """
    found = [("forward", module.forward) for module in modules[:forward]]
    keys = [_key(visit) for visit in order]
    visited = Counter(key for key, visit in zip(keys[forward:], order[forward:], strict=True) if visit.left)
    left = dict(visited)
    for key, visit, module in zip(keys[forward:], order[forward:], modules[forward:], strict=True):
        if not visit.left:
            # Backward is in the last module of a layer while the layer is recomputed.
            found.append(("backward begins", 0.0))
            continue
        left[key] -= 1
        if left[key]:
            found.append(("recompute", module.recompute))
        elif module.backward or not module.recompute:
            alone = module.recompute if visited[key] == 1 else 0.0
            found.append(("backward", module.backward + alone))
        else:
            found.append(("recompute", module.recompute))
    return found


def _key(visit: Visit) -> tuple[str, int]:
    operator, copy = visit.parts[0]
    return operator.name, copy
