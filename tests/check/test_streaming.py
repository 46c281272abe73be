"""What is said of parameters on their way to the GPU is of parameters alone."""

import re

import pytest
from check.asked import CPU, ZERO, Ask

from ziplan.check.rules import RULES

NO_PREFETCH = {f"{ZERO}.stage3_prefetch_bucket_size": 0}

SLICES = """schema: ziplan.plan/1
runtime: megatron
zero_stage: 3
placement: {params: {hbm: 1}, grads: {hbm: 1}, optimizer: {hbm: 1}, checkpoints: {hbm: 1}}
dp_degree: 8
tp_degree: 4
pp_degree: 1
micro_batch_size: 1
accumulation_steps: 4
activation_checkpointing: none
prefetch_depth: 0
tile_count: 1
sub_group_params: 100000000
param_buffer_count: 0
optimizer_buffer_count: 0
"""


@pytest.mark.parametrize("changes", [NO_PREFETCH, {**CPU, **NO_PREFETCH}], ids=["on the GPU", "on the host"])
def test_gradients_on_the_same_links_are_not_waited_for_by_layers(tmp_path, changes):
    ask = Ask(changes, cluster="rtx-3090-x8", training={"sequence_length": 256})
    (found,), terms = ask.found(tmp_path / "found", RULES["ZP203"]), ask.case(tmp_path).estimate.terms
    assert sum(terms[term] for term in terms if term.startswith("gradient")) > 0
    fetches = terms["gather"] + terms.get("parameter copy", 0.0)
    assert found.number.value == pytest.approx(fetches)


def test_a_slice_of_megatron_waits_for_its_gathers_wherever_their_ring_goes(tmp_path):
    ask = Ask(plan=SLICES, model="llama-2-7b", cluster="4x dgx-a100-80g", training={"sequence_length": 4096})
    (found,), terms = ask.found(tmp_path / "found", RULES["ZP203"]), ask.case(tmp_path).estimate.terms
    assert found.number.value == pytest.approx(terms["gather"])
    assert found.number.value > 0
    layer = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    assert int(re.search(r"([0-9,]+) elements", found.fix)[1].replace(",", "")) == layer // 4


def test_nothing_is_said_where_no_layer_waits(tmp_path):
    """Over so fast a network the Python thread takes longer than what is sent and computed in turn."""
    fast = {"settings": ("links.network.bandwidth=4 TB/s",), "training": {"sequence_length": 256}}
    ask = Ask(plan=SLICES, model="llama-2-7b", cluster="4x dgx-a100-80g", **fast)
    assert "gather" not in ask.case(tmp_path).estimate.terms
    assert not ask.found(tmp_path / "found", RULES["ZP203"])
