"""Blocks of experts that DeepSpeed's stage 3 takes as one module: leaves, fetched and let go whole.

Source: DeepSpeed 0.19.8, `utils/z3_leaf_module.py` (a leaf has hooks of its own and none below it) and
`runtime/zero/leaf_module_config.py` (which classes are leaves unless a config says otherwise). In
transformers 5 every family here has its experts as tensors of all of them in one module: where a block is no
leaf, that module, the router and what every token takes are visited one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ziplan.workload.model import Layer, Model, Operator

LEAF_CLASSES = (
    "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
    "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
    "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
)
"""`leaf_module_config.py:DEFAULT_LEAF_MODULE_CLASSES` of 0.18.0, the first that has it, to 0.19.8."""


class Block(NamedTuple):
    """A family's block of experts: its class, its name in a layer, the modules in it as it makes them."""

    class_name: str
    name: str
    made: tuple[str, ...]

    def place(self, operator: Operator) -> int:
        """Which of the block's modules an operator is, or is part of; -1 for what is not in the block."""
        inside = operator.name.removeprefix(f"{self.name}.")
        if inside == operator.name:
            return -1
        own = inside.partition(".")[0]
        return self.made.index(own) if own in self.made else -1


_SPARSE, _EXPERTS_FIRST = ("gate", "experts"), ("experts", "gate", "shared_experts")
_SHARED = (*_SPARSE, "shared_expert", "shared_expert_gate")
BLOCKS = {
    "mixtral": Block("mixtral.modeling_mixtral.MixtralSparseMoeBlock", "mlp", _SPARSE),
    "qwen2_moe": Block("qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock", "mlp", _SHARED),
    "qwen3_moe": Block("qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock", "mlp", ("experts", "gate")),
    "olmoe": Block("olmoe.modeling_olmoe.OlmoeSparseMoeBlock", "mlp", _SPARSE),
    "minimax_m2": Block("minimax_m2.modeling_minimax_m2.MiniMaxM2SparseMoeBlock", "mlp", _SPARSE),
    "granitemoe": Block(
        "granitemoe.modeling_granitemoe.GraniteMoeMoE", "block_sparse_moe", ("router", "experts")
    ),
    "gpt_oss": Block("gpt_oss.modeling_gpt_oss.GptOssMLP", "mlp", ("router", "experts")),
    "deepseek_v2": Block("deepseek_v2.modeling_deepseek_v2.DeepseekV2Moe", "mlp", _EXPERTS_FIRST),
    "deepseek_v3": Block("deepseek_v3.modeling_deepseek_v3.DeepseekV3MoE", "mlp", _EXPERTS_FIRST),
    "glm4_moe": Block("glm4_moe.modeling_glm4_moe.Glm4MoeMoE", "mlp", _EXPERTS_FIRST),
    "llama4_text": Block(
        "llama4.modeling_llama4.Llama4TextMoe", "feed_forward", ("experts", "router", "shared_expert")
    ),
}
"""The block of each family that has experts, in `transformers.models` 5.24."""


def leaf_block(model: Model, classes: tuple[str, ...]) -> Block | None:
    """The model's block of experts where it is a leaf: its class is named, with its module or without."""
    block = BLOCKS.get(model.family)
    if block is None:
        return None
    names = {f"transformers.models.{block.class_name}", block.class_name.rpartition(".")[2]}
    return block if names & set(classes) else None


def in_modules(layer: Layer, block: Block | None) -> list[tuple[int, ...]]:
    """Places in a layer, as forward visits them, of the operators in each module that has hooks.

    Each is alone but for those of a leaf, which are in the order in which they are made. A layer without
    experts has another class in the block's place.
    """
    inside = [block.place(operator) if block else -1 for operator in layer]
    if not any(layer[place].kind == "experts" for place, made in enumerate(inside) if made >= 0):
        return [(place,) for place in range(len(layer))]
    leaf = sorted((place for place, made in enumerate(inside) if made >= 0), key=lambda place: inside[place])
    first = min(leaf)
    return [
        tuple(leaf) if place == first else (place,)
        for place in range(len(layer))
        if place == first or inside[place] < 0
    ]


def forward_visits(
    model: Model, classes: tuple[str, ...], repeats: Sequence[int] | None = None
) -> tuple[int, int]:
    """Visits that forward makes to modules with parameters, in layers and outside of them.

    `repeats` is how often each section is played, all of the model unless given.
    """
    block, counts = leaf_block(model, classes), [0, 0]
    for section, repeat in zip(model.sections, repeats or [s.repeat for s in model.sections], strict=True):
        counts[not section.block] += repeat * sum(len(in_modules(layer, block)) for layer in section.layers)
    return counts[0], counts[1]


def largest_gradients(model: Model, classes: tuple[str, ...]) -> int:
    """Elements of the gradients that stage 3 has at once before it reduces any.

    Of a leaf all of them: they are reduced when its backward has ended
    (`stage3.py:create_reduce_and_remove_grad_hooks`). Else those of the largest tensor.
    """
    most = max((elements for elements, _, _ in model.trainable_tensors), default=0)
    block = leaf_block(model, classes)
    if block is None:
        return most
    layers = (layer for section in model.sections if section.block for layer in section.layers)
    together = (
        sum(sum(layer[place].tensors) for place in places if layer[place].trainable)
        for layer in layers
        for places in in_modules(layer, block)
        if len(places) > 1
    )
    return max([most, *together])
