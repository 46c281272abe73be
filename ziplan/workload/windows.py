"""Which attentions of a decoder see a part of what comes before them, as transformers 5 reads configs."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ziplan.workload.families.family import Fields
from ziplan.workload.model import Window


class Rule(NamedTuple):
    """What an absent key stands for: tokens of a window, and every how many layers one sees all (0: none).

    `switch` is a key without which no layer has a window, `first` one that tells how many layers have none.
    """

    tokens: int | None = None
    whole_every: int = 0
    key: str = "sliding_window"
    kind: str = "sliding_attention"
    switch: str = ""
    first: str = ""


_SWITCHED = Rule(4096, switch="use_sliding_window", first="max_window_layers")

RULES = {
    "cohere2": Rule(4096, 4),
    "gemma2": Rule(4096, 2),
    "gemma3_text": Rule(4096, 6),
    "gpt_oss": Rule(128, 2),
    "llama4_text": Rule(8192, 4, "attention_chunk_size", "chunked_attention"),
    "mistral": Rule(4096),
    "mixtral": Rule(),
    "olmo3": Rule(4096, 4),
    "phi3": Rule(),
    "qwen2": _SWITCHED,
    "qwen2_moe": _SWITCHED,
    "qwen3": _SWITCHED,
    "qwen3_moe": _SWITCHED,
    "starcoder2": Rule(),
}
"""By `model_type` (`models/*/configuration_*.py`). GPT-Neo's local layers mask what they compute whole."""

WHOLE = "full_attention"


def windows(model_type: str, fields: Fields, layers: int) -> tuple[Window, ...]:
    """The windows of a model's attentions, with how many see through each; none where all see all."""
    rule = RULES.get(model_type)
    if rule is None or (rule.switch and not fields.flag(rule.switch, False)):
        return ()
    tokens = fields.count_or_none(rule.key, rule.tokens)
    if tokens is None:
        return ()
    kinds = fields.texts("layer_types", (WHOLE, rule.kind))
    if kinds and len(kinds) != layers:
        fields.unsupported("layer_types", f"it has {len(kinds):,} entries for {layers:,} layers")
        return ()
    seen = Counter(kinds or _by_rule(rule, fields, layers))
    return (Window(tokens, seen[rule.kind], rule.kind == "chunked_attention"),) if seen[rule.kind] else ()


def _by_rule(rule: Rule, fields: Fields, layers: int) -> list[str]:
    every = fields.count("sliding_window_pattern", rule.whole_every) if rule.whole_every else 0
    first = fields.count(rule.first, layers) if rule.first else 0
    whole = (place < first or (every and not (place + 1) % every) for place in range(layers))
    return [WHOLE if each else rule.kind for each in whole]
