"""What each module computes in forward, in recomputation and in backward: a micro-step's FLOPs, divided."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ziplan.runtimes.shared.compute import SWEEP, stopped_before
from ziplan.runtimes.shared.facts import Facts
from ziplan.workload.gradients import Reach, reaches
from ziplan.workload.model import Layer, Operator


class Module(NamedTuple):
    """One visit of forward: a copy of an operator, its layer (-1 outside of them), FLOPs of each sweep."""

    operator: Operator
    copy: int
    layer: int
    forward: float
    recompute: float
    backward: float

    @property
    def name(self) -> str:
        """The module for people: "layer 3 q_proj"."""
        own = self.operator.name.rpartition(".")[2]
        return f"layer {self.layer} {own}" if self.layer >= 0 else own


def modules(f: Facts, flops: float) -> list[list[Module]]:
    """The modules of a model in forward's order, a list for each layer and for what lies between.

    `flops` is the whole micro-step's. What is not products with matrices is attention's own, of
    which forward has one part, recomputation another and backward two; it is spread over the
    matrices of the layers.
    """
    layers = [
        (section.block, layer)
        for section in f.workload.model.sections
        for layer in section.layers * section.repeat
    ]
    flows = reaches([layer for _, layer in layers], bool(f.embedding_gradients))
    counted: Counter[str] = Counter()
    rows, number = [], -1
    for (block, layer), flow in zip(layers, flows, strict=True):
        number += block
        row = []
        for operator, reach in zip(layer, flow, strict=True):
            recomputed = bool(f.full) and block and flow[-1].output
            row.append(
                _products(f, operator, counted[operator.name], number if block else -1, reach, recomputed)
            )
            counted[operator.name] += 1
        if any(module.recompute for module in row):
            row = _stopped(f, row, layer)
        rows.append(row)
    return _with_attention(f, rows, flops)


def _products(f: Facts, operator: Operator, copy: int, layer: int, reach: Reach, recomputed: bool) -> Module:
    """FLOPs of a module's products with its matrices, as `micro_step_flops` counts them."""
    once = SWEEP * operator.matmul_params * f.tokens
    gradients = once * (reach.input + operator.trainable)
    return Module(operator, copy, layer, once, once * recomputed, gradients)


def _stopped(f: Facts, row: list[Module], layer: Layer) -> list[Module]:
    """A layer whose recomputation ends before its last matrix, where it does."""
    left_out = f.stops_early * SWEEP * stopped_before(layer) * f.tokens
    last = max(place for place, module in enumerate(row) if module.forward)
    again = row[last].recompute - left_out
    return [*row[:last], row[last]._replace(recompute=again), *row[last + 1 :]]


def _with_attention(f: Facts, rows: list[list[Module]], flops: float) -> list[list[Module]]:
    everything = [module for row in rows for module in row]
    inside = [module for module in everything if module.layer >= 0 and module.forward > 0]
    own = flops - sum(module.forward + module.recompute + module.backward for module in everything)
    reached = {row[0].layer for row in rows if any(module.backward for module in row)}
    # Parts by sweep, each weighed by what the module's matrices do in forward.
    again, back = float(f.full), 2.0 + float(f.selective)
    weights = sum(m.forward * (1 + (m.layer in reached) * (again + back)) for m in inside) or 1.0
    part = own / weights

    def added(module: Module) -> Module:
        if module.layer < 0 or module.forward <= 0:
            return module
        more = part * module.forward
        swept = more * (module.layer in reached)
        return module._replace(
            forward=module.forward + more,
            recompute=module.recompute + swept * again,
            backward=module.backward + swept * back,
        )

    return [[added(module) for module in row] for row in rows]
