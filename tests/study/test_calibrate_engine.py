"""What the real DeepSpeed prints under `wall_clock_breakdown` is what the log's reader takes."""

import pytest
from study.calibrated import subject

from engine.harness import Spec, World, run_ranks
from ziplan.study.calibrate.logs import OPTIMIZER, SWAP_IN, WHOLE_STEP, printed
from ziplan.study.calibrate.runs import FORWARD_BACKWARD, OPTIMIZER_READ, WARM_UP, run_of_file
from ziplan.study.calibrate.runs import OPTIMIZER as OPTIMIZER_PHASE

pytestmark = [pytest.mark.engine, pytest.mark.slow]

STEPS, ACCUMULATION = 4, 2
MODEL = {
    "model_type": "llama",
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 1024,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}


def config(**sections):
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": ACCUMULATION,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "wall_clock_breakdown": True,
        "memory_breakdown": True,
        "zero_optimization": {
            "stage": 3,
            "stage3_prefetch_bucket_size": 0,
            "sub_group_size": 2e6,
            **sections,
        },
    }


def told(folder, ranks, **sections):
    """The log of rank 0."""
    run_ranks(config(**sections), Spec(model=MODEL, steps=STEPS), World(ranks), folder)
    return folder / "rank0" / "said.txt"


def test_a_run_with_nvme_tells_all_that_is_read(tmp_path):
    log = told(
        tmp_path / "nvme", 2, offload_optimizer={"device": "nvme", "nvme_path": "x", "buffer_count": 4}
    )
    found = printed(log.read_text().splitlines())
    assert list(found.steps) == [0]
    assert len(found.steps[0]) == STEPS
    for step in found.steps[0]:
        assert step.micro_steps == ACCUMULATION
        assert all(step.seconds[name] > 0 for name in (*WHOLE_STEP, SWAP_IN, OPTIMIZER))
        # What is read is a part of the optimizer's pass, and that of the step.
        assert step.seconds[SWAP_IN] < step.seconds[OPTIMIZER] < step.seconds["step"]
        assert step.seconds["bwd_inner"] + step.seconds["bwd_allreduce"] <= 1.05 * step.seconds["bwd"] + 1e-3
    assert found.host_used_bytes > 1e8
    assert found.gpu_peak_bytes is not None
    run = run_of_file(log, subject(accumulation_steps=float(ACCUMULATION)))
    assert run.steps == STEPS - WARM_UP
    assert set(run.phases) == {FORWARD_BACKWARD, OPTIMIZER_PHASE, OPTIMIZER_READ}


def test_a_run_that_swaps_nothing_tells_two_phases(tmp_path):
    log = told(tmp_path / "cpu", 1, offload_optimizer={"device": "cpu"})
    run = run_of_file(log, subject(accumulation_steps=float(ACCUMULATION)))
    assert set(run.phases) == {FORWARD_BACKWARD, OPTIMIZER_PHASE}
    assert run.step_time > 0
