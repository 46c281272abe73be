"""What modules outside of the layers keep; test_activation_trackers holds it against PyTorch's tracker."""

from dataclasses import replace

import pytest
from runtimes.toy import cluster, plan

from ziplan.estimate import estimate
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.shared.outside import LAST, OTHERS
from ziplan.workload.load import load_workload

TOKENS = 3 * 16


def held(shape, name, runtime="deepspeed", training=None, gpus=1, **fields):
    """Bytes (low, high) per token, and the phases that they are held in."""
    settings = {"sequence_length": 16, "precision": "bf16"} | (training or {})
    work, machine, engine = (
        load_workload(shape, settings),
        cluster(gpus=gpus, hbm="9999 GB"),
        RUNTIMES[runtime],
    )
    chosen = plan(zero_stage=0.0, micro_batch_size=3.0)
    asked = replace(engine.settle(machine, work, chosen), **fields)
    found = [line for line in estimate(machine, work, engine, asked).ledger.lines if line.name == name]
    phases = {phase for line in found for phase in line.phases}
    return sum(line.low for line in found) / TOKENS, sum(line.high for line in found) / TOKENS, phases


@pytest.mark.parametrize(
    ("shape", "low", "high"),
    [
        # Inputs of LayerNorm and head; of RMSNorm a copy in fp32, what it normalized in 16 bits or in 32.
        ("gpt2", 2 * 768 + 2 * 768, 2 * 768 + 2 * 768),
        ("llama-3.2-1b", 4 * 2048, (4 + 2 + 2) * 2048),
        ("gemma-2-2b", 4 * 2304, (4 + 4 + 2) * 2304),
    ],
)
@pytest.mark.parametrize("runtime", ["deepspeed", "fsdp"])
def test_the_last_norm_and_the_head_keep_their_inputs_until_backward(runtime, shape, low, high):
    assert held(shape, LAST, runtime) == (low, high, {"forward"})
    assert held(shape, OTHERS, runtime)[1] == 0


def test_norms_in_front_of_the_last_layer_keep_theirs_while_backward_runs():
    width = 1024
    assert held("bloom-560m", OTHERS) == (2 * width, 2 * width, {"forward", "backward"})
    # An encoder's norm, of T5 an RMSNorm.
    assert held("t5-base", OTHERS)[1:] == ((4 + 2) * 768, {"forward", "backward"})


def test_a_frozen_head_may_keep_nothing():
    adapters = {"trainable": {"lora_rank": 8, "targets": ["q_proj"]}}
    assert held("llama-3.2-1b", LAST, training=adapters)[:2] == (2 * 2048, (4 + 2 + 2) * 2048)
    # DeepSpeed's own linear function of stage 3 keeps it all the same.
    assert held("llama-3.2-1b", LAST, training=adapters, zero_stage=3.0)[0] == 4 * 2048


def test_in_a_pipeline_another_stage_may_have_the_head():
    assert held("gpt2", LAST, "megatron")[:2] == (4 * 768, 4 * 768)
    assert held("gpt2", LAST, "megatron", gpus=2, pp_degree=2.0)[:2] == (0, 4 * 768)
