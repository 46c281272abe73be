"""A small config, and what is said of one that is refused."""

from __future__ import annotations

import pytest

from ziplan.errors import BadInput
from ziplan.workload.load import load_workload

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "rope_scaling": {"factor": 8.0},
}
LENGTH = {"sequence_length": 128}
A100 = ("fp32", "fp16", "bf16")


def refused(argument, overrides=LENGTH, precisions=A100):
    """(line, column, message) of every problem, and everything said about them."""
    with pytest.raises(BadInput) as caught:
        load_workload(argument, overrides, precisions)
    problems = caught.value.problems
    places = [(problem.line, problem.column, problem.message) for problem in problems]
    return places, " ".join(f"{problem} {problem.help} {problem.hint}" for problem in problems)
