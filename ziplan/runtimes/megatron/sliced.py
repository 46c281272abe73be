"""What tensor parallelism leaves of a model on one rank: DeepSpeed below sees this model and no other.

Megatron divides every matrix of a layer, the table of tokens and the head over the group; norms and
position embeddings stay whole (arXiv:1909.08053 sec 3). A layer's checkpoint is divided too, as
Megatron-DeepSpeed's scripts ask for (`--partition-activations`; arXiv:1910.02054 sec 6.1): so a rank's
slice is narrower by the degree where nothing but the checkpoint is as wide as the model.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from ziplan.runtimes.megatron import laws
from ziplan.runtimes.megatron.facts import UNDIVIDED_MASKS, UNDIVIDED_TENSORS
from ziplan.runtimes.shared.facts import ELEMENT_BYTES
from ziplan.workload.model import ActivationBytes, Model, Operator
from ziplan.workload.passes import Passes
from ziplan.workload.training import Workload

PADDED_TO = 128
"""A rank's part of the vocabulary is a multiple of it."""


def sliced(workload: Workload, tp_degree: int) -> Workload:
    """The workload of one rank of a tensor-parallel group."""
    if tp_degree == 1:
        return workload
    return replace(workload, model=_model(workload.model, tp_degree), activations=_kept(workload, tp_degree))


def _model(model: Model, degree: int) -> Model:
    structure = tuple(
        replace(
            section,
            layers=tuple(tuple(_operator(o, model, degree) for o in layer) for layer in section.layers),
        )
        for section in model.structure
    )
    return replace(
        model,
        operators=tuple(_operator(operator, model, degree) for operator in model.operators),
        structure=structure,
        d_model=ceil(model.d_model / degree),
        attention_heads=model.attention_heads // degree,
        key_value_heads=max(1, model.key_value_heads // degree),
        vocab_size=_rows(model.vocab_size, degree),
    )


def _rows(vocabulary: int, degree: int) -> int:
    """A rank's rows of a table of tokens, which is padded (`--make-vocab-size-divisible-by`, by default)."""
    return PADDED_TO * ceil(vocabulary / (PADDED_TO * degree))


def _operator(operator: Operator, model: Model, degree: int) -> Operator:
    """A matrix into the layer's width is divided by its inputs, any other by its outputs."""
    if operator.kind == "embedding" and operator.out_features == model.vocab_size:
        return replace(operator, out_features=_rows(operator.out_features, degree))
    if operator.kind != "linear":
        return operator
    if operator.block and operator.out_features == model.d_model and operator.in_features % degree == 0:
        return replace(operator, in_features=operator.in_features // degree)
    whole = operator.out_features
    return replace(operator, out_features=ceil(whole / degree) if operator.block else _rows(whole, degree))


def _kept(workload: Workload, degree: int) -> ActivationBytes:
    """What a layer keeps on one rank, per token."""
    acts, width = workload.activations, float(workload.model.d_model)
    least = UNDIVIDED_TENSORS * ELEMENT_BYTES[workload.precision] * width
    most = least + UNDIVIDED_MASKS * width

    undivided = min(1.0, most / (acts.none_high or most))

    def part(whole: float, undivided: float) -> float:
        return laws.divided_bytes_per_token(
            whole_bytes_per_token=whole,
            replicated_bytes_per_token=min(whole, undivided),
            tp_degree=float(degree),
        )

    return ActivationBytes(
        none_low=part(acts.none_low, least),
        none_high=part(acts.none_high, most),
        selective_low=part(acts.selective_low, least),
        selective_high=part(acts.selective_high, most),
        attention_scores_low=acts.attention_scores_low / degree,
        attention_scores_high=acts.attention_scores_high / degree,
        frozen_inputs=acts.frozen_inputs,
        selective_frozen_inputs=acts.selective_frozen_inputs,
        fused=_moved(acts.fused, undivided, degree),
        written=_moved(acts.written, undivided, degree),
    )


def _moved(passes: Passes, undivided: float, degree: int) -> Passes:
    """What a rank's kernels move, of which a share is not divided; there are as many of them."""
    share = undivided + (1 - undivided) / degree
    return replace(passes, forward=share * passes.forward, backward=share * passes.backward)
