"""Adapters and frozen parts in every runtime; engine tests hold the same against the real ones."""

from types import SimpleNamespace

import pytest
from runtimes.toy import HIDDEN, MIDDLE, VOCABULARY, cluster, plan, toy, workload

from ziplan.estimate import estimate
from ziplan.laws.law import Derivation
from ziplan.plan import Checkpointing
from ziplan.runtimes import RUNTIMES
from ziplan.runtimes.runtime import COLLECTIVE
from ziplan.runtimes.shared.compute import micro_step_flops
from ziplan.runtimes.shared.facts import Facts
from ziplan.runtimes.shared.train_py import trainable_lines
from ziplan.workload.adapted import adapted
from ziplan.workload.training import Training

RANK, LAYERS, RANKS = 8, 4, 4
ADAPTERS = {"lora_rank": RANK, "targets": ["qkv", "down"]}
ADDED = LAYERS * RANK * ((HIDDEN + 3 * HIDDEN) + (MIDDLE + HIDDEN))
LAYER_MATRICES = 4 * HIDDEN**2 + 2 * HIDDEN * MIDDLE
HEAD = HIDDEN * VOCABULARY


def work(trainable="all", **training):
    settings = Training.model_validate({"sequence_length": 16, "trainable": trainable})
    model = adapted(toy(LAYERS), settings.trainable)
    return workload(model, trainable=trainable, **training)


def answered(name, trainable, params="hbm", optimizer="hbm", **fields):
    runtime, machine, load = RUNTIMES[name], cluster(gpus=RANKS), work(trainable)
    chosen = plan(params, optimizer, dp_degree=float(RANKS), **fields)
    return estimate(machine, load, runtime, runtime.settle(machine, load, chosen))


def held(answer, tier, *names):
    lines = [line for line in answer.ledger.lines if line.tier == tier and line.name in names]
    assert lines
    return sum(line.high for line in lines)


def moved(answer, term):
    demands = {id(d): d for segment in answer.segments for chain in segment.chains for d in chain}
    return sum(d.amount for d in demands.values() if d.term == term and d.resource != COLLECTIVE)


@pytest.mark.parametrize("full", [False, True])
def test_flops_of_adapters_leave_out_the_weight_gradients_of_the_base(full):
    """2 forward, 2 for inputs above the first adapter, 2 for the adapters' weights, 2 recomputed."""
    load = work(ADAPTERS)
    mode = Checkpointing.FULL if full else Checkpointing.NONE
    facts = Facts(Derivation(), cluster(), load, plan(activation_checkpointing=float(mode)))
    tokens, width = 16, HIDDEN
    blocks = LAYERS * LAYER_MATRICES + ADDED
    below = 3 * HIDDEN**2 + RANK * HIDDEN  # of the first layer qkv, and the first linear of its adapter
    matrices = 2 * (blocks + HEAD) + 2 * (blocks + HEAD - below) + 2 * ADDED + full * 2 * blocks
    attention = 4 * tokens * width * LAYERS * 0.5 * (3 + full)
    assert micro_step_flops(facts) == pytest.approx(tokens * (matrices + attention), rel=1e-12)


def test_deepspeed_keeps_states_of_the_adapters_and_parameters_of_all():
    answer = answered("deepspeed", ADAPTERS, "dram", "dram")
    params = toy(LAYERS).params + ADDED
    assert held(answer, "dram", "parameters as first partitioned") == 2 * params
    assert held(answer, "dram", "parameters") == 2 * ADDED
    assert held(answer, "dram", "optimizer state", "master weights") == 12 * ADDED
    assert held(answer, "dram", "fp32 gradients", "gradient accumulation buffer") == 6 * ADDED
    assert held(answer, "hbm", "gradients", "optimizer state") == 0
    assert moved(answer, "CPU optimizer") == ADDED * (28 + 14) / 28
    assert moved(answer, "gradient reduce") == 2 * ADDED * (RANKS - 1) / RANKS


def test_deepspeed_below_stage_3_keeps_frozen_weights_whole():
    answer = answered("deepspeed", ADAPTERS, zero_stage=2.0)
    params = toy(LAYERS).params + ADDED
    assert held(answer, "hbm", "parameters") == 2 * params
    assert held(answer, "hbm", "gradients") == 2 * ADDED / RANKS
    assert moved(answer, "updated parameter gather") == 2 * ADDED * (RANKS - 1) / RANKS


def test_frozen_parameters_are_read_from_flash_and_never_written():
    everything = answered("deepspeed", "all", "nvme", "nvme")
    frozen = answered("deepspeed", {"frozen": ["up", "down"]}, "nvme", "nvme")
    mlp = LAYERS * 2 * HIDDEN * MIDDLE / RANKS
    assert everything.traffic["nvme"][1] - frozen.traffic["nvme"][1] == 18 * mlp
    # What is frozen and gathered to recompute a layer is let go, and read once more for its backward.
    again = LAYERS * HIDDEN * MIDDLE / RANKS
    assert moved(frozen, "parameter read") - moved(everything, "parameter read") == 2 * again
    assert held(everything, "nvme", "parameter files") == held(frozen, "nvme", "parameter files")


@pytest.mark.parametrize("stage", [2.0, 3.0])
def test_only_stage_3_keeps_inputs_that_no_gradient_needs(stage):
    """DeepSpeed's linear function saves its input in any case, PyTorch's not where the weight is frozen."""
    load = work(ADAPTERS)
    kept = load.activations.__class__(100.0, 200.0, 50.0, 100.0, frozen_inputs=30.0)
    load = load.__class__(load.model, load.training, load.precision, kept)
    machine, runtime = cluster(gpus=RANKS), RUNTIMES["deepspeed"]
    chosen = plan(zero_stage=stage, dp_degree=4.0, activation_checkpointing=float(Checkpointing.NONE))
    lines = runtime.ledger(Derivation(), machine, load, runtime.settle(machine, load, chosen)).lines
    (line,) = (line for line in lines if line.name == "activations")
    assert (line.low, line.high) == (16 * LAYERS * (100 if stage == 3 else 70), 16 * LAYERS * 200)


def test_fsdp_keeps_frozen_shards_in_the_precision_that_computes():
    answer = answered("fsdp", ADAPTERS, "dram", "dram")
    assert held(answer, "dram", "frozen parameters") == 2 * toy(LAYERS).params
    assert held(answer, "dram", "parameters") == 4 * ADDED
    assert held(answer, "dram", "optimizer state") == 8 * ADDED
    root = 2 * HEAD + 2 * HIDDEN
    climbs = 2 * (2 * (toy(LAYERS).params - root) + root) + 2 * 4 * ADDED
    assert moved(answer, "parameter copy") == climbs / RANKS
    assert moved(answer, "gradient reduce") == 2 * ADDED * (RANKS - 1) / RANKS


def test_ideal_keeps_16_bytes_of_what_is_trained_and_2_of_the_rest():
    answer = answered("ideal", ADAPTERS, "dram", "dram")
    states = held(answer, "dram", "parameters", "gradients", "optimizer state")
    assert states == pytest.approx(16 * ADDED + 2 * toy(LAYERS).params)
    assert moved(answer, "gradient stream") == pytest.approx(2 * ADDED / RANKS)


class FakeModel:
    """Named parameters that remember whether they are trained."""

    def __init__(self, *names):
        self.weights = {name: SimpleNamespace(trained=True) for name in names}
        for weight in self.weights.values():
            weight.requires_grad_ = lambda value, weight=weight: setattr(weight, "trained", value)

    def named_parameters(self):
        return self.weights.items()

    @property
    def frozen(self):
        return [name for name, weight in self.weights.items() if not weight.trained]


def test_the_lines_for_train_py_freeze_what_was_planned():
    names = ("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlps.weight")
    model = FakeModel(*names)
    training = Training.model_validate(
        {"sequence_length": 1, "trainable": {"frozen": ["mlp", "embed_tokens"]}}
    )
    exec("\n".join(trainable_lines(training)), {"model": model})
    assert model.frozen == list(names[:2])


@pytest.mark.parametrize("runtime", ["deepspeed", "fsdp"])
@pytest.mark.parametrize("targets", [["qkv"], ["all-linear"]])
def test_launch_files_say_how_adapters_are_made(runtime, targets):
    trainable = {"lora_rank": RANK, "targets": targets}
    machine, load = cluster(gpus=RANKS), work(trainable)
    chosen = RUNTIMES[runtime].settle(machine, load, plan(dp_degree=float(RANKS)))
    text = RUNTIMES[runtime].emit(machine, load, chosen)["launch.sh"]
    named = '"all-linear"' if targets == ["all-linear"] else '["qkv"]'
    settings = f"peft.LoraConfig(r=8, target_modules={named})"
    said = f"# model = peft.get_peft_model(model, {settings}, autocast_adapter_dtype=False)"
    assert said in text.splitlines()
