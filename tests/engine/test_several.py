"""Several models in one job: what is predicted of all of them against what their engines do together."""

import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtimes.several import with_companions

from engine import nursery
from engine.test_emitters import known_keys, parsed, plans, unknown_keys
from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes import deepspeed
from ziplan.runtimes.deepspeed.knobs import PERSISTENCE_THRESHOLD
from ziplan.workload.load import load_workload

# Importing DeepSpeed and transformers warns of their own deprecations.
pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PLACEMENTS = {
    "all on the GPU": ("hbm", "hbm"),
    "both on the host": ("dram", "dram"),
    "both on NVMe": ("nvme", "nvme"),
}
WORLDS = {"one rank": 1, "rank 0 of 8": 8}
COMPANIONS = ("reference", "critic", "reward")
MODELS = ("trained", *COMPANIONS)


def shape(hidden, middle):
    heads = {"num_attention_heads": 8, "num_key_value_heads": 4}
    fixed = {"model_type": "llama", "tie_word_embeddings": False, "max_position_embeddings": 64}
    sizes = {"hidden_size": hidden, "intermediate_size": middle, "num_hidden_layers": 3, "vocab_size": 1024}
    return {**fixed, **heads, **sizes}


LARGE, SMALL = shape(1024, 4096), shape(768, 2048)
SHAPES = {"trained": LARGE, "reference": LARGE, "critic": SMALL, "reward": SMALL}


class Job:
    """Four models planned together, and what their engines did."""

    def __init__(self, folder, tiers, ranks, **fields):
        for name, config in SHAPES.items():
            (folder / name).mkdir()
            (folder / name / "config.json").write_text(json.dumps(config))
        others = [f"{name}={folder / name}" for name in COMPANIONS]
        stated = {"sequence_length": 2, "precision": "bf16"}
        self.workload = load_workload(str(folder / "trained"), stated, companions=others)
        cluster = load_cluster("dgx-a100-80g")
        params, optimizer = ({tier: 1.0} for tier in tiers)
        plan = Plan(
            dp_degree=float(ranks),
            placement=Placement(params=params, grads=optimizer, optimizer=optimizer),
            activation_checkpointing=Checkpointing.NONE,
            **{"optimizer_buffer_count": 4, "prefetch_depth": 0, **fields},
        )
        self.plan = deepspeed.settle(cluster, self.workload, plan)
        self.predicted = estimate(cluster, self.workload, deepspeed, self.plan)
        swap = folder / "swap"
        self.files = deepspeed.emit(cluster, self.workload, self.plan, nvme_path=str(swap))
        self.done = run(folder, self.files, ranks)
        self.ranks = ranks

    def demanded(self, term, resource):
        """Bytes per rank and step that the step has of a term on a resource."""
        total = 0.0
        for segment in self.predicted.segments:
            once = {id(demand): demand for chain in segment.chains for demand in chain}
            amounts = [d.amount for d in once.values() if (d.term, d.resource) == (term, resource)]
            total += segment.repeats * sum(amounts)
        return total

    def lines(self, tier, pinned=None):
        """Bytes of one rank in a tier of the node, in the phase after which nothing else is made."""
        lines = [line for line in self.predicted.ledger.lines if line.tier == tier]
        lines = [line for line in lines if "step" in line.phases and pinned in (None, line.pinned)]
        return sum(line.high for line in lines) / self.ranks


def config_of(files, name):
    return json.loads(files["ds_config.json" if name == "trained" else f"ds_config_{name}.json"])


def run(folder, files, ranks):
    models = [
        {
            "name": name,
            "config": config_of(files, name),
            "shape": SHAPES[name],
            "trained": name in ("trained", "critic"),
            "one_value": name in ("critic", "reward"),
        }
        for name in MODELS
    ]
    swap = folder / "swap"
    swap.mkdir()
    store = str(folder / "store")
    job = {"models": models, "rank": 0, "world": ranks, "simulated": ranks > 1, "store": store}
    try:
        return nursery.run("engine.several", [job], folder)[0]
    finally:
        shutil.rmtree(swap)  # before the system writes it to disk


def close(value):
    return pytest.approx(value, rel=0.01)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_all_models_together_move_and_hold_what_was_predicted(tmp_path, placement, world):
    job = Job(tmp_path, PLACEMENTS[placement], WORLDS[world], accumulation_steps=2)
    held = [job.workload.model, *(each.model for each in job.workload.companions)]
    assert list(job.done["params"].values()) == [model.params for model in held]
    assert job.done["optimizers"]["reference"] == job.done["optimizers"]["reward"] == "DeepSpeedZeRoOffload"
    last = job.done["last"]
    read, written = job.predicted.traffic.get("nvme", (0.0, 0.0))
    assert sum(last["read_bytes"].values()) == close(read)
    assert sum(last["write_bytes"].values()) == close(written)
    assert sum(job.done["files"]["bytes"].values()) == close(job.lines("nvme"))
    assert sum(job.done["locked_bytes"].values()) == close(job.lines("dram", pinned=True))


@pytest.mark.parametrize(
    ("placement", "prefetch_depth"), [("both on the host", 0), ("both on the host", 1), ("both on NVMe", 0)]
)
def test_each_model_is_fetched_as_often_as_predicted(tmp_path, placement, prefetch_depth):
    """Elements gathered in a step of two micro-steps, model by model: once each where only forward runs."""
    job = Job(tmp_path, PLACEMENTS[placement], 1, prefetch_depth=prefetch_depth, accumulation_steps=2)
    gathers = job.done["last"]["gathers"]
    for name in MODELS:
        term = "parameter copy" if name == "trained" else f"{name}: parameter copy"
        assert 2 * gathers[name] == job.demanded(term, "dram.read"), name
    for each in job.workload.companions:
        if not each.trained:
            apart = sum(n * count for n, count, _ in each.model.tensors if n <= PERSISTENCE_THRESHOLD)
            assert gathers[each.name] == 2 * (each.model.params - apart)


def test_below_stage_3_what_is_not_trained_is_whole_on_every_gpu(tmp_path):
    job = Job(tmp_path, ("hbm", "dram"), 8, zero_stage=2)
    assert config_of(job.files, "reference")["zero_optimization"] == {"stage": 0}
    assert not job.done["last"]["gathers"]
    line = next(each for each in job.predicted.ledger.lines if each.name == "reference: parameters")
    assert line.high == 2 * job.done["params"]["reference"]
    # Without accumulation: its buffers are whole tensors where a tensor is two ranks' together.
    assert sum(job.done["locked_bytes"].values()) == close(job.lines("dram", pinned=True))


@settings(derandomize=True, max_examples=60, deadline=None)
@given(plans(), st.data())
def test_deepspeed_takes_the_config_of_every_model(situation, data):
    machine, work, chosen = situation
    work = with_companions(work, offload=data.draw(st.sampled_from(["auto", "none", "cpu"])))
    chosen = deepspeed.settle(machine, work, chosen)
    files = deepspeed.emit(machine, work, chosen, nvme_path="/drives")
    host = json.dumps({"device": "cpu", "pin_memory": True})
    for each in work.companions:
        document = json.loads(files[f"ds_config_{each.name}.json"])
        assert unknown_keys(document, known_keys()) == set()
        config = parsed(document, machine.gpu_count)
        assert ("optimizer" in document) is each.trained
        on_host = each.offload == "cpu"
        infers = 3 if chosen.zero_stage == 3 or on_host else 0
        stage = (3 if on_host else int(chosen.zero_stage)) if each.trained else infers
        assert config.zero_config.stage == stage
        homes = document["zero_optimization"].get("offload_param")
        assert (json.dumps(homes) == host) if on_host else each.offload == "auto" or homes is None
        assert config.train_micro_batch_size_per_gpu == chosen.micro_batch_size
