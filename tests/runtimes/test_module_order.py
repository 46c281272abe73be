"""The order of a model's tensors, which decides what a rank's partition and a sub-group are made of."""

import pytest
from workload.hugging_face import hf_parameters

from ziplan.runtimes.deepspeed.shards import in_module_order
from ziplan.workload.load import load_model
from ziplan.workload.shapes import shape_config

AS_VISITED = ("gpt2", "bloom-560m", "opt-125m", "gpt-neo-125m", "starcoderbase-1b", "mpt-7b", "gpt-j-6b")
NORMS_LAST = (
    *("llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b", "gemma-3-1b", "falcon-7b", "phi-2", "olmo-2-1b"),
    *("mixtral-8x7b", "olmoe-1b-7b", "starcoder2-3b", "stablelm-3b", "command-r7b"),
)


@pytest.mark.filterwarnings("ignore")  # importing transformers warns of its own deprecations
@pytest.mark.parametrize("name", [*AS_VISITED, *NORMS_LAST])
def test_tensors_come_in_the_order_in_which_transformers_makes_them(name):
    assert list(in_module_order(load_model(name))) == list(hf_parameters(shape_config(name)).values())
