"""What ziplan predicts of DeepSpeed against what DeepSpeed does with the config that ziplan emits.

A model is planned from the same Hugging Face config that it is then built from, so module
granularity, shard sizes and swap thresholds are the real ones.
"""

import json

import pytest

from engine.harness import Spec, World, run
from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes import deepspeed
from ziplan.workload.load import load_workload

pytestmark = [pytest.mark.engine, pytest.mark.slow]

TOKENS = 2
PLACEMENTS = {
    "all on the GPU": ("hbm", "hbm"),
    "optimizer on the host": ("hbm", "dram"),
    "both on the host": ("dram", "dram"),
    "optimizer on NVMe": ("hbm", "nvme"),
    "both on NVMe": ("nvme", "nvme"),
}
SHAPES = {
    # At one and two ranks some shards swap and some do not; at 64 only the wide matrices do.
    "narrow": {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 3, "vocab_size": 1024},
    "wide": {"hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 1, "vocab_size": 1024},
}
WORLDS = {
    "one rank": ("narrow", World(1)),
    "two ranks": ("narrow", World(2)),
    "rank 0 of 64": ("wide", World(64, simulated=True)),
}
RANKS_PER_NODE = 8


def shape(name):
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    fixed = {"model_type": "llama", "tie_word_embeddings": False, "max_position_embeddings": 64}
    return {**fixed, **heads, **SHAPES[name]}


class Case:
    """A plan written by hand and settled by ziplan, its prediction, and what the engine did with it."""

    def __init__(
        self,
        folder,
        model,
        world,
        tiers,
        checkpointing=Checkpointing.NONE,
        trainable="all",
        training=None,
        **fields,
    ):
        folder.mkdir(exist_ok=True)
        config = shape(model)
        (folder / "config.json").write_text(json.dumps(config))
        params, optimizer = ({tier: 1.0} for tier in tiers)
        placement = Placement(params=params, grads=optimizer, optimizer=optimizer)
        settings = {"sequence_length": TOKENS, "precision": "bf16", "trainable": trainable} | (training or {})
        self.workload = load_workload(str(folder), settings)
        self.cluster = load_cluster(f"{-(-world.ranks // RANKS_PER_NODE)}x dgx-a100-80g")
        fields = {"optimizer_buffer_count": 4, "prefetch_depth": 0, **fields}
        plan = Plan(
            dp_degree=world.ranks, placement=placement, activation_checkpointing=checkpointing, **fields
        )
        self.plan = deepspeed.settle(self.cluster, self.workload, plan)
        self.ranks_per_node = min(RANKS_PER_NODE, world.ranks)
        self.predicted = estimate(self.cluster, self.workload, deepspeed, self.plan)
        files = deepspeed.emit(self.cluster, self.workload, self.plan)
        kind = "none" if checkpointing == Checkpointing.NONE else "non_reentrant"
        spec = Spec(config, sequence_length=TOKENS, checkpointing=kind, trainable=trainable)
        self.done = run(json.loads(files["ds_config.json"]), spec, world, folder / "run")

    def demanded(self, term, resource):
        """Bytes per rank and step that the step program has of a term on a resource."""
        total = 0.0
        for segment in self.predicted.segments:
            once = {id(demand): demand for chain in segment.chains for demand in chain}
            matching = [d.amount for d in once.values() if (d.term, d.resource) == (term, resource)]
            total += segment.repeats * sum(matching)
        return total

    def lines(self, tier, *names, pinned=None):
        """Bytes of one rank in a tier of the node, by the ledger's lines of these names, or all."""
        lines = [line for line in self.predicted.ledger.lines if line.tier == tier]
        lines = [line for line in lines if not names or line.name in names]
        lines = [line for line in lines if pinned is None or line.pinned is pinned]
        return sum(line.high for line in lines) / self.ranks_per_node


def close(value):
    return pytest.approx(value, rel=0.01)


def ranks_with_files(case):
    """Ranks that ran and left swap files: all of them, or only the simulated one."""
    return 1 if case.plan.dp_degree > RANKS_PER_NODE else case.plan.dp_degree


def check(case):
    """Swap traffic, swap files, page-locked memory: what was predicted against what was counted."""
    done = case.done
    read, written = case.predicted.traffic.get("nvme", (0.0, 0.0))
    assert done.params == case.workload.model.params
    assert sum(done.read_bytes.values()) == close(read)
    assert sum(done.write_bytes.values()) == close(written)
    assert sum(done.file_bytes.values()) / ranks_with_files(case) == close(case.lines("nvme"))
    assert sum(done.locked_bytes.values()) == close(case.lines("dram", pinned=True))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("placement", PLACEMENTS)
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


def check_states(case, tier):
    """Master weights and the optimizer's own state in memory."""
    ranks = case.ranks_per_node if tier == "dram" else 1
    lines = [line for line in case.predicted.ledger.lines if line.tier == tier]
    master = sum(line.high for line in lines if line.name in ("master weights", "pinned master weights"))
    moments = sum(line.high for line in lines if line.name == "optimizer state")
    assert case.done.data["states"]["master"] == close(master / ranks)
    assert case.done.data["states"]["moments"] == close(moments / ranks)


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
    case = Case(tmp_path, "narrow", World(2), ("hbm", tier), training=training, zero_stage=stage)
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
    case = Case(tmp_path, "narrow", World(2), ("hbm", tier), training=training, zero_stage=stage)
    check(case)
    if tier != "nvme":
        check_states(case, tier)
