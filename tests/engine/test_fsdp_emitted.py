"""What ziplan predicts of FSDP2 against what FSDP2 does with the `fsdp_setup.py` that ziplan emits."""

import json

import pytest
import yaml

from engine import nursery
from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes import fsdp
from ziplan.runtimes.runtime import NOT_BYTES
from ziplan.workload.load import load_workload

pytestmark = [pytest.mark.engine, pytest.mark.slow]

TOKENS, RANKS_PER_NODE = 8, 8
SHAPE = {
    # No dimension but the layers' widths is a multiple of 64, so padding shows.
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "vocab_size": 250,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "max_position_embeddings": 64,
}


class Case:
    """A plan, its prediction, and what each rank counted."""

    def __init__(
        self,
        folder,
        world,
        home="hbm",
        simulated=False,
        spread=False,
        shape=SHAPE,
        trainable="all",
        kind="adamw",
        **fields,
    ):
        (folder / "config.json").write_text(json.dumps(shape))
        precision = fields.pop("precision", "bf16")
        settings = {
            "sequence_length": TOKENS,
            "precision": precision,
            "trainable": trainable,
            "optimizer": kind,
            "master_precision": fields.pop("master", "fp32"),
            "kernels": fields.pop("kernels", None),
        }
        self.workload = load_workload(str(folder), settings)
        rate = [("gpu.peak_flops_per_s.fp32", "19.5 TFLOP/s")]
        self.cluster = load_cluster(f"{-(-world // RANKS_PER_NODE)}x dgx-a100-80g", rate)
        place = {home: 1.0}
        fields = {"activation_checkpointing": Checkpointing.NONE, **fields}
        plan = Plan(dp_degree=float(world), placement=Placement(place, place, place), **fields)
        self.plan = fsdp.settle(self.cluster, self.workload, plan)
        self.predicted = estimate(self.cluster, self.workload, fsdp, self.plan)
        self.files = fsdp.emit(self.cluster, self.workload, self.plan)
        (folder / "fsdp_setup.py").write_text(self.files["fsdp_setup.py"])
        job = {
            "setup": str(folder / "fsdp_setup.py"),
            "model": shape,
            "sequence_length": TOKENS,
            "world": world,
            "simulated": simulated,
            "spread": spread,
            "trainable": trainable,
            "store": str(folder / "store"),
        }
        jobs = [{**job, "rank": rank} for rank in range(1 if simulated else world)]
        self.done = nursery.run("engine.fsdp_train", jobs, folder)

    def line(self, tier, name):
        """Bytes of one rank by the ledger's line of this name."""
        (line,) = (x for x in self.predicted.ledger.lines if (x.tier, x.name) == (tier, name))
        ranks = min(RANKS_PER_NODE, self.plan.dp_degree) if tier == "dram" else 1
        assert line.low <= line.high
        return line.high / ranks

    def demanded(self, *terms):
        """Bytes per rank and step that the program has of these terms."""
        total = 0.0
        for segment in self.predicted.segments:
            once = {id(demand): demand for chain in segment.chains for demand in chain}
            moved = (d.amount for d in once.values() if d.term in terms and d.resource not in NOT_BYTES)
            total += segment.repeats * sum(moved)
        return total


def held(case, home):
    """Bytes of one rank's parameters, trained and frozen."""
    frozen = case.workload.trainable_params < case.workload.model.params
    return case.line(home, "parameters") + (case.line(home, "frozen parameters") if frozen else 0)


def check(case, home):
    """States of rank 0, and the bytes of every step, exactly."""
    world, done = case.plan.dp_degree, case.done[0]
    assert done["elements"] == case.workload.model.params
    assert done["pinned"] == (held(case, home) if home == "dram" else 0)
    for step in done["steps"]:
        assert step["groups"] == case.workload.model.layer_count + 1
        assert step["params"] == held(case, home)
        assert step["grads"] == case.line(home, "gradients")
        assert step["moments"] == case.line(home, "optimizer state")
        others = (world - 1) / world
        assert step.get("gathered_bytes", 0) * others == pytest.approx(case.demanded("gather"), rel=1e-9)
        reduced = case.demanded("gradient reduce")
        assert step.get("reduced_bytes", 0) * others == pytest.approx(reduced, rel=1e-9)
        copied = case.demanded("parameter copy")
        assert step.get("copied_bytes", 0) == pytest.approx(copied, rel=1e-9)


@pytest.mark.parametrize("home", ["hbm", "dram"])
@pytest.mark.parametrize("world", [1, 2, 64])
def test_holds_and_moves_the_bytes_that_were_predicted(tmp_path, world, home):
    check(Case(tmp_path, world, home, simulated=world == 64), home)


@pytest.mark.parametrize("home", ["hbm", "dram"])
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_states_of_16_bits_are_half_of_all(tmp_path, kind, home):
    case = Case(tmp_path, 2, home, kind=kind, master="bf16", accumulation_steps=2.0)
    check(case, home)
    own = case.done[0]["elements"] / 2
    assert held(case, home) == pytest.approx(2 * own, rel=0.05)


def test_working_memory_of_16_bit_states_peaks_within_its_lines(tmp_path):
    """Nothing is cast on its way."""
    peak, lines = working_memory(Case(tmp_path, 8, simulated=True, master="bf16"))
    for line in lines:
        assert line.low <= peak[line.name] <= line.high
    assert sum(line.low for line in lines) <= peak["all"] <= sum(line.high for line in lines)


def test_states_of_16_bits_are_spread_from_rank_0(tmp_path):
    pytest.importorskip("accelerate")
    losses = []
    for spread in (False, True):
        (folder := tmp_path / str(spread)).mkdir()
        case = Case(folder, 2, "dram", spread=spread, master="bf16")
        check(case, "dram")
        losses.append([step["loss"] for step in case.done[0]["steps"]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("checkpointing", [Checkpointing.NONE, Checkpointing.FULL])
@pytest.mark.parametrize("steps", [1, 2])
def test_recomputing_and_accumulating_gather_twice_a_micro_step(tmp_path, checkpointing, steps):
    """Recomputation falls into backward's gather; gradients are reduced in every micro-step."""
    fields = {"activation_checkpointing": checkpointing, "accumulation_steps": float(steps)}
    case = Case(tmp_path, 2, "hbm", **fields)
    check(case, "hbm")
    groups = {"layers": 3 * 4 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 160 + 2 * 64) / 4}
    root = 2 * 250 * 64 + 64
    assert case.done[0]["steps"][-1]["gathered_elements"] == steps * (2 * groups["layers"] + root)


def test_weights_spread_from_rank_0_train_as_those_whole_on_each(tmp_path):
    """Over both worlds, as every rank sees the same batches."""
    pytest.importorskip("accelerate")
    losses = []
    for world, spread in ((1, False), (2, False), (2, True)):
        (folder := tmp_path / f"{world}{spread}").mkdir()
        case = Case(folder, world, "dram", spread=spread, precision="fp32")
        losses.append([step["loss"] for step in case.done[0]["steps"]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[1] == pytest.approx(losses[2], rel=1e-6)
    assert all(5 < loss < 6 for loss in losses[0])  # ln(250) = 5.5


def working_memory(case):
    """What rank 0 held at the most besides its states, by name, and the lines of those names."""
    peak = case.done[0]["peak"]
    return peak, [line for line in case.predicted.ledger.lines if line.name in peak and line.name != "all"]


@pytest.mark.parametrize("vocabulary", [250, 2000])
def test_working_memory_peaks_within_its_lines(tmp_path, vocabulary):
    """Gathered parameters exactly; flat buffers and whole gradients, one by one and together, in range."""
    shape = {**SHAPE, "vocab_size": vocabulary}
    case = Case(tmp_path, 8, simulated=True, shape=shape, activation_checkpointing=Checkpointing.FULL)
    peak, lines = working_memory(case)
    assert peak["gathered parameters"] == case.line("hbm", "gathered parameters")
    for line in lines:
        assert line.low <= peak[line.name] <= line.high
    assert sum(line.low for line in lines) <= peak["all"] <= sum(line.high for line in lines)


TRAINABLE = {
    "adapters": {"lora_rank": 6, "targets": ["q_proj", "down_proj"]},
    "frozen parts": {"frozen": ["embed_tokens", "mlp"]},
    "the head alone": {
        "frozen": ["embed_tokens", "self_attn", "mlp", "input_layernorm", "post_attention_layernorm"]
    },
}


@pytest.mark.parametrize("home", ["hbm", "dram"])
@pytest.mark.parametrize("trainable", TRAINABLE)
def test_parts_of_the_model_are_trained(tmp_path, trainable, home):
    check(Case(tmp_path, 2, home, trainable=TRAINABLE[trainable], accumulation_steps=2.0), home)


@pytest.mark.parametrize("home", ["hbm", "dram"])
def test_another_optimizer_keeps_what_was_predicted(tmp_path, home):
    check(Case(tmp_path, 2, home, kind="sgd"), home)


def test_attention_alone_is_recomputed(tmp_path):
    """Gathers are those of a run without recomputation, and the losses its own."""
    losses = []
    for mode in (Checkpointing.NONE, Checkpointing.SELECTIVE):
        (folder := tmp_path / mode.name).mkdir()
        case = Case(folder, 2, "hbm", activation_checkpointing=mode, precision="fp32")
        check(case, "hbm")
        losses.append([step["loss"] for step in case.done[0]["steps"]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_compiled_layers_hold_and_move_the_same(tmp_path):
    """Graphs leave FSDP2's hooks and recomputation alone, and the losses are those of eager layers."""
    mode = Checkpointing.FULL
    losses = []
    for kernels in ("eager", "compiled"):
        (folder := tmp_path / kernels).mkdir()
        case = Case(folder, 2, "hbm", activation_checkpointing=mode, precision="fp32", kernels=kernels)
        check(case, "hbm")
        assert case.done[0]["compiled"] == (3 if kernels == "compiled" else 0)
        losses.append([step["loss"] for step in case.done[0]["steps"]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_tied_embeddings_are_gathered_once(tmp_path):
    check(Case(tmp_path, 2, "hbm", shape={**SHAPE, "tie_word_embeddings": True}), "hbm")


@pytest.mark.parametrize("home", ["hbm", "dram"])
@pytest.mark.parametrize("checkpointing", [Checkpointing.NONE, Checkpointing.FULL])
def test_accelerate_takes_its_config(tmp_path, home, checkpointing, monkeypatch):
    """Read by accelerate itself, and turned into its plugin by way of its launcher's environment."""
    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    workload = load_workload(str(tmp_path), {"sequence_length": TOKENS, "precision": "bf16"})
    cluster, place = load_cluster("2x dgx-a100-80g"), {home: 1.0}
    plan = Plan(
        dp_degree=16.0, placement=Placement(place, place, place), activation_checkpointing=checkpointing
    )
    text = fsdp.emit(cluster, workload, fsdp.settle(cluster, workload, plan))["accelerate_config.yaml"]
    path = tmp_path / "accelerate_config.yaml"
    path.write_text(text)
    config = config_args.load_config_from_file(str(path))
    assert (str(config.distributed_type), config.num_processes, config.num_machines) == (
        "DistributedType.FSDP",
        16,
        2,
    )
    assert config.mixed_precision == "bf16"
    assert config.fsdp_config == yaml.safe_load(text)["fsdp_config"]
    plugin = plugin_of(config.fsdp_config, monkeypatch)
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert type(plugin.cpu_offload).__name__ == ("CPUOffloadPolicy" if home == "dram" else "OffloadPolicy")
    assert plugin.activation_checkpointing is (checkpointing == Checkpointing.FULL)


def plugin_of(settings, monkeypatch):
    """accelerate's plugin, made from the variables that its launcher sets for these settings."""
    from accelerate import FullyShardedDataParallelPlugin

    for name, value in settings.items():
        monkeypatch.setenv(name.upper(), str(value).lower() if isinstance(value, bool) else str(value))
    return FullyShardedDataParallelPlugin()
