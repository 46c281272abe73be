"""DeepSpeed's optimizer step, sub-group by sub-group, with swapping behind the update or without.

Source: DeepSpeed 0.19.8, `runtime/zero/stage3.py:step` (`_prepare_sub_group`, `_optimizer_step`,
`_reassign_or_swap_out_partitioned_parameters`, `_release_sub_group`) and
`runtime/swap_tensor/pipelined_optimizer_swapper.py` (`swap_in_optimizer_state`,
`swap_out_optimizer_state`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.shards import sub_groups
from ziplan.runtimes.runtime import PYTHON
from ziplan.runtimes.schedule import Parts, Work, Works, shares
from ziplan.runtimes.terms import UPDATED_COPY, UPDATED_PAGES

OPTIMIZER_BUFFERS = "optimizer swap buffers"

AT_ONCE = 3
"""Sub-groups with buffers at the same time when swapping is pipelined: read, updated, written."""


def update(f: Facts, parts: Parts, afterwards: Parts) -> Sequence[Work]:
    """Everything between the last gradient and the next forward."""
    written = _Written(f, parts, afterwards, shares(_sub_groups(f)))
    for number in range(len(written.shares)):
        written.sub_group(number)
    return written.finished()


def _sub_groups(f: Facts) -> tuple[float, ...]:
    """Elements of each sub-group of one rank; below stage 3 all of them at once."""
    if f.plan.zero_stage < 3:
        return (f.trained,)
    return sub_groups(f.workload.model, f.plan.dp_degree, f.plan.sub_group_params) or (f.trained,)


class _Written:
    """Writes the sub-groups down, one after the other."""

    def __init__(self, f: Facts, parts: Parts, afterwards: Parts, shares: Sequence[float]) -> None:
        self.f, self.parts, self.afterwards, self.shares = f, parts, afterwards, shares
        self.works = Works()
        self.swaps = bool(f.swaps_optimizer)
        self.pipelined = bool(f.pipelined)
        self.buffers = f.plan.optimizer_buffer_count / (AT_ONCE if self.pipelined else 1)
        self.incoming, self.outgoing = f"{f.nvme}.swap_read", f"{f.nvme}.swap_write"
        self.thread = -1
        self.read = -1
        self.writing = -1
        states = f.states * f.trained_shards.owned * f.swaps_optimizer
        params = f.element * f.trained_shards.swappable_params * f.params_on(f.nvme)
        self.params_part = params / (states + params) if states + params else 0.0

    def sub_group(self, number: int) -> None:
        """Read (or find read), update, write the 16-bit parameters and then the state."""
        name, share = f"sub-group {number}", self.shares[number]
        if self.swaps and not self.pipelined:
            self.thread = self._read(number, (self.thread,))
        elif self.swaps:
            # This one's read was begun while the one before was at work; now the next one's is.
            begun = self.read if number else self._read(number, ())
            self.thread = self.works.mark(name, (begun, self.thread))
            if number + 1 < len(self.shares):
                self.read = self._read(number + 1, (self.thread,))
        for term, resource in (("GPU optimizer", f"{self.f.gpu}.read"), ("CPU optimizer", "cpu_optimizer")):
            self._waited(name, self.parts, term, resource, share)
        if self.f.host:
            self._waited(name, self.afterwards, UPDATED_PAGES, PYTHON, share)
            for resource in self.afterwards.resources(UPDATED_COPY):
                self._waited(name, self.afterwards, UPDATED_COPY, resource, share)
        if self.f.nvme:
            self._write(name, share)

    def _read(self, number: int, after: tuple[int, ...]) -> int:
        """A sub-group's state and gradients come in, into buffers of their own."""
        amount = self.parts.of("optimizer read", self.incoming, self.shares[number])
        return self.works.add(
            f"sub-group {number}",
            "optimizer read",
            self.incoming,
            amount,
            after,
            line="reads",
            takes=((OPTIMIZER_BUFFERS, self.buffers),),
        )

    def _waited(self, name: str, parts: Parts, term: str, resource: str, share: float) -> None:
        """A piece of work that the Python thread waits for."""
        amount = parts.of(term, resource, share)
        if amount:
            self.thread = self.works.add(name, term, resource, amount, (self.thread,))

    def _write(self, name: str, share: float) -> None:
        """The 16-bit parameters are waited for always, the state of the sub-group before when pipelined."""
        self._waited(name, self.parts, "optimizer write", self.outgoing, share * self.params_part)
        if not self.swaps:
            return
        if self.writing >= 0:
            self.thread = self.works.mark(name, (self.thread, self.writing))
        amount = self.parts.of("optimizer write", self.outgoing, share * (1 - self.params_part))
        written = self.works.add(
            name,
            "optimizer write",
            self.outgoing,
            amount,
            (self.thread,),
            gives=((OPTIMIZER_BUFFERS, self.buffers),),
        )
        if self.pipelined:
            self.writing = written
        else:
            self.thread = written

    def finished(self) -> Sequence[Work]:
        """With what comes when every sub-group is done."""
        for parts in (self.parts, self.afterwards):
            for demand in parts.rest():
                self.thread = self.works.add("after the update", *demand, (self.thread, self.writing))
        return self.works.all
