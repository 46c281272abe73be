"""What modules outside of the layers keep for backward: embeddings' norms, the last norm, the head."""

from __future__ import annotations

from collections.abc import Iterable

from ziplan.laws.law import where
from ziplan.runtimes.runtime import Ledger
from ziplan.runtimes.shared.facts import FP32_BYTES, Facts
from ziplan.runtimes.shared.memory import of_tokens
from ziplan.workload.model import Model, Operator

LAST, OTHERS = "kept by the last norm and the head", "kept by other modules outside of layers"

KNOB = "micro_batch_size, sequence_length, longest_sequence"

WEIGHT_IN_FP32 = frozenset({"gemma", "gemma2", "gemma3_text", "olmo2", "olmo3"})
"""Families whose RMSNorm multiplies its weight in fp32, so that what it normalized is kept in fp32."""


def add_outside(book: Ledger, f: Facts, frozen_inputs_kept: float = 0.0, surely: float = 1.0) -> None:
    """Inputs of norms and of matrices; `frozen_inputs_kept` as in `memory.add_activations`.

    What follows the last layer is let go where backward begins: it stands beside the logits and the loss
    alone. `surely` is 0 where another rank may have it.
    """
    model = f.workload.model
    if not model.trainable_params:
        return
    # In front of the first gradient nothing is kept.
    reached = where(f.by_reach(lambda swept: swept.layers) > 0, surely, 0.0)
    whole = surely if model.trainable_params == model.params else 0.0
    before, after = _outside(model)
    for name, operators, phases, certain in (
        (LAST, after, ("forward",), reached),
        (OTHERS, before, ("forward", "backward"), whole),
    ):
        low, high = _kept(model, operators, f.element, frozen_inputs_kept)
        if high:
            least, most = (of_tokens(f, name, 1.0, each) for each in (low, high))
            book.add(name, f.gpu, phases, most, low=certain * least, knob=KNOB)


def _outside(model: Model) -> tuple[list[Operator], list[Operator]]:
    """Visits of modules outside of layers: in front of the last layer, and behind it."""
    last = max(place for place, section in enumerate(model.sections) if section.block)
    found: tuple[list[Operator], list[Operator]] = ([], [])
    for place, section in enumerate(model.sections):
        if not section.block:
            visits = [operator for layer in section.layers * section.repeat for operator in layer]
            found[place > last].extend(visits)
    return found


def _kept(
    model: Model, operators: Iterable[Operator], element: float, frozen_inputs_kept: float
) -> tuple[float, float]:
    """Bytes per token, low and high.

    A LayerNorm, or a norm that is one kernel, keeps its input; an RMSNorm as it is written a copy of that in
    fp32 and what it normalized. A matrix keeps its input, of the tokens that get logits.
    """
    low = high = 0.0
    normalized = FP32_BYTES if model.family in WEIGHT_IN_FP32 else element
    for operator in operators:
        width = operator.in_features
        if operator.kind == "norm":
            low += element * width
            high += (element if operator.bias else FP32_BYTES + normalized) * width
        elif operator.kind == "linear":
            kept = model.logits_share * element * width
            low += kept * (1.0 if operator.trainable else frozen_inputs_kept)
            high += kept
    return low, high
