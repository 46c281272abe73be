"""Which gathers a micro-step of stage 3 waits for: the longest way through it, at several paces of the links.

What is asked for is gathered in that order, and asked for when the GPU reaches a module; a module computes
when all of it has come, so what one lacks waits behind what was read ahead for others. The longest way is so
much computation and so much gathering, one after the other: which of each depends on how fast one is beside
the other, so it is taken at a few paces. Whatever the pace, a micro-step takes no less time than any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ziplan.runtimes.deepspeed.coordinator import Coordinator, Policy, Tensor
from ziplan.runtimes.deepspeed.visits import Visit

GATHER_PACES = (1 / 16, 0.5, 1.0, 2.0)
"""Times that a gathered element takes, over that of one parameter's product in one sweep.

At the first only what is asked for too late is waited for; beyond the last the gathers alone are the longest
way.
"""

Ways = npt.NDArray[np.float64]
"""For each pace, of the longest way: parameters that multiply, elements gathered."""


NO_WAYS: Ways = np.zeros((len(GATHER_PACES), 2))


class _Way(NamedTuple):
    """A way through a micro-step: how long it takes, and what it is made of."""

    time: float
    computed: float
    gathered: float


BEGIN = _Way(0.0, 0.0, 0.0)


class Paced(Coordinator):
    """The coordinator, telling how long its micro-step is where each visit computes so much."""

    def __init__(self, order: Sequence[Visit], policy: Policy, work: Sequence[float]) -> None:
        super().__init__(order, policy)
        self.work = work
        self.now, self.last = [BEGIN] * len(GATHER_PACES), [BEGIN] * len(GATHER_PACES)
        self.came: dict[Tensor, list[_Way]] = {}

    @property
    def ways(self) -> Ways:
        """The longest way so far."""
        return np.array([(way.computed, way.gathered) for way in self.now])

    def visit(self, step: int) -> None:
        """Reach one module: what is asked for comes, and then the module computes."""
        super().visit(step)
        needed = {id(ways): ways for name in self.modules[step] if (ways := self.came.get(name))}
        for place, now in enumerate(self.now):
            begin = max([now, *(ways[place] for ways in needed.values())])
            more = self.work[step]
            self.now[place] = _Way(begin.time + more, begin.computed + more, begin.gathered)

    def gather(self, fetched: Sequence[Tensor]) -> None:
        """Gather these tensors behind all that was asked for before."""
        super().gather(fetched)
        if not fetched:
            return
        elements = float(sum([self.sizes[name] for name in fetched]))
        for place, pace in enumerate(GATHER_PACES):
            begin = max(self.last[place], self.now[place])
            self.last[place] = _Way(begin.time + pace * elements, begin.computed, begin.gathered + elements)
        ways = list(self.last)
        self.came.update((name, ways) for name in fetched)
