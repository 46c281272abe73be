"""What ziplan predicts of DeepSpeed against what DeepSpeed does with the config that ziplan emits."""

import pytest

from engine.harness import World
from engine.planned import PLACEMENTS, Case, check, check_states
from ziplan.plan import Checkpointing
from ziplan.runtimes.deepspeed.shards import reached, reached_by_rank

pytestmark = [pytest.mark.engine, pytest.mark.slow]

WORLDS = {
    "one rank": ("narrow", World(1)),
    "two ranks": ("narrow", World(2)),
    "rank 0 of 64": ("wide", World(64, simulated=True)),
}


# At 64 ranks a small model takes four times as long, and only what swaps depends on their number.
EVERYWHERE = [
    pytest.param(
        placement, world, marks=[pytest.mark.engine_all] if "64" in world and "NVMe" not in placement else []
    )
    for placement in PLACEMENTS
    for world in WORLDS
]


@pytest.mark.parametrize(("placement", "world"), EVERYWHERE)
def test_moves_and_holds_the_bytes_that_were_predicted(tmp_path, placement, world):
    check(Case(tmp_path, *WORLDS[world], PLACEMENTS[placement]))


@pytest.mark.parametrize("checkpointing", [Checkpointing.NONE, Checkpointing.FULL])
@pytest.mark.parametrize("prefetch_depth", [0, 1])
@pytest.mark.parametrize("placement", ["both on the host", "both on NVMe"])
def test_fetches_what_was_predicted(tmp_path, placement, prefetch_depth, checkpointing):
    """Elements gathered in a step of two micro-steps, exactly."""
    settings = {"prefetch_depth": prefetch_depth, "checkpointing": checkpointing, "accumulation_steps": 2}
    case = Case(tmp_path, "narrow", World(1), PLACEMENTS[placement], **settings)
    check(case)
    assert 2 * case.done.last["gathered_elements"] == case.demanded("parameter copy", "dram.read")


@pytest.mark.parametrize(
    ("stage", "optimizer"), [(0, "hbm"), (1, "hbm"), (1, "dram"), (2, "hbm"), (2, "dram")]
)
def test_trains_below_stage_3(tmp_path, stage, optimizer):
    check(Case(tmp_path, "narrow", World(2), ("hbm", optimizer), zero_stage=stage, accumulation_steps=2))


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(("stage", "optimizer"), [(1, "hbm"), (1, "dram"), (2, "hbm"), (2, "dram")])
def test_gradients_below_stage_3_are_as_large_as_predicted(tmp_path, stage, optimizer, steps):
    """What backward leaves on the device, where a tensor is not on its way into a bucket or to the host."""
    fields = {"zero_stage": stage, "accumulation_steps": steps}
    case = Case(tmp_path, "narrow", World(3, simulated=True), ("hbm", optimizer), **fields)
    check(case)
    model, dp = case.workload.model, case.plan.dp_degree
    (most, high), (whole,) = case.gpu("gradients"), case.gpu("gradient of the largest tensor")[1:]
    # The ledger's are of the rank that owns most, what was counted is of rank 0.
    owned = reached(model, dp, 1.0, False).rank - reached_by_rank(model, dp, False)[0][0]
    kept = 0 if (stage == 1 and steps > 1) or optimizer == "dram" else 2 * owned * (2 if steps > 1 else 1)
    assert most - kept <= case.done.peak["gradient_bytes"] <= high - kept + whole
    staged = case.done.data["temp_grad_buffer_for_gpu_offload"] or 0
    assert staged == case.gpu("gradient staging")[1]


@pytest.mark.parametrize("pipelined", [4, 12])
def test_optimizer_swaps_in_several_sub_groups(tmp_path, pipelined):
    fields = {"sub_group_params": 2_000_000, "optimizer_buffer_count": pipelined}
    check(Case(tmp_path, "narrow", World(1), ("nvme", "nvme"), **fields))


TRAINABLE = {
    # Wide enough for adapters that are partitioned again after use, and for shards of theirs that swap.
    "adapters": {"lora_rank": 256, "targets": ["q_proj", "v_proj", "down_proj"]},
    "adapters inside a layer": {"lora_rank": 512, "targets": ["k_proj"]},
    "frozen parts": {"frozen": ["embed_tokens", "mlp"]},
}


PARTS = [
    ("adapters", "both on the host", Checkpointing.NONE),
    ("adapters", "both on NVMe", Checkpointing.FULL),
    ("adapters", "optimizer on NVMe", Checkpointing.FULL),
    ("adapters inside a layer", "both on the host", Checkpointing.FULL),
    ("adapters inside a layer", "both on NVMe", Checkpointing.NONE),
    ("frozen parts", "both on the host", Checkpointing.FULL),
    ("frozen parts", "both on NVMe", Checkpointing.NONE),
]


@pytest.mark.parametrize(("trainable", "placement", "checkpointing"), PARTS)
def test_parts_of_the_model_are_trained(tmp_path, trainable, placement, checkpointing):
    fields = {"checkpointing": checkpointing, "trainable": TRAINABLE[trainable], "accumulation_steps": 2}
    case = Case(tmp_path, "narrow", World(2), PLACEMENTS[placement], **fields)
    check(case)
    if placement != "optimizer on NVMe":
        gathered = 2 * case.done.last["gathered_elements"] / case.plan.dp_degree
        assert gathered == case.demanded("parameter copy", "dram.read")


@pytest.mark.parametrize("prefetch_depth", [0, 1])
def test_adapters_are_read_ahead_and_let_go_as_predicted(tmp_path, prefetch_depth):
    """Also where recomputation lets go of what was read ahead for backward."""
    fields = {"trainable": TRAINABLE["adapters"], "prefetch_depth": prefetch_depth}
    case = Case(tmp_path, "narrow", World(1), ("dram", "dram"), Checkpointing.FULL, **fields)
    check(case)
    assert 2 * case.done.last["gathered_elements"] == case.demanded("parameter copy", "dram.read")


@pytest.mark.parametrize(("stage", "optimizer"), [(0, "hbm"), (1, "dram"), (2, "hbm"), (2, "dram")])
def test_adapters_are_trained_below_stage_3(tmp_path, stage, optimizer):
    fields = {"zero_stage": stage, "trainable": TRAINABLE["adapters"]}
    check(Case(tmp_path, "narrow", World(2), ("hbm", optimizer), **fields))


def test_adapters_of_rank_0_of_64(tmp_path):
    """Shards of adapters too small to swap beside frozen ones that do."""
    fields = {"trainable": {"lora_rank": 64, "targets": ["up_proj", "down_proj"]}}
    case = Case(tmp_path, *WORLDS["rank 0 of 64"], PLACEMENTS["both on NVMe"], **fields)
    check(case)


ONE_OF_TWO = World(2, simulated=True)
"""Rank 0 alone: what is held does not depend on what the other one says."""

OPTIMIZERS = [
    ("lion", 2, "dram"),
    ("lion", 3, "dram"),
    ("lion", 3, "nvme"),
    ("adafactor", 3, "hbm"),
    ("adafactor", 1, "hbm"),
    ("sgd", 3, "hbm"),
]


@pytest.mark.parametrize(("kind", "stage", "tier"), OPTIMIZERS)
def test_other_optimizers_keep_what_was_predicted(tmp_path, kind, stage, tier):
    training = {"optimizer": {"kind": kind, "weight_decay": 0.1}}
    case = Case(tmp_path, "narrow", ONE_OF_TWO, ("hbm", tier), training=training, zero_stage=stage)
    check(case)
    if tier != "nvme":
        check_states(case, tier)


PRECISIONS = [
    ("fp32", "fp32", 3, "hbm"),
    ("fp32", "fp32", 1, "hbm"),
    ("fp32", "fp32", 2, "dram"),
    ("fp32", "fp32", 3, "dram"),
    ("fp32", "fp32", 3, "nvme"),
    ("bf16", "bf16", 3, "hbm"),
    ("bf16", "bf16", 2, "hbm"),
    ("bf16", "bf16", 2, "dram"),
    ("bf16", "bf16", 3, "dram"),
    ("bf16", "fp32", 3, "hbm"),
]


@pytest.mark.parametrize(("precision", "master", "stage", "tier"), PRECISIONS)
def test_states_have_the_precision_that_was_asked_for(tmp_path, precision, master, stage, tier):
    training = {"precision": precision, "master_precision": master}
    case = Case(tmp_path, "narrow", ONE_OF_TWO, ("hbm", tier), training=training, zero_stage=stage)
    check(case)
    if tier != "nvme":
        check_states(case, tier)
