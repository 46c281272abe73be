"""A plan written by hand, what ziplan predicts of it, and what DeepSpeed does with the config it emits.

A model is planned from the same Hugging Face config that it is then built from, so module
granularity, shard sizes and swap thresholds are the real ones.
"""

import contextlib
import json
from unittest import mock

import pytest

from engine.harness import Spec, run
from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes import deepspeed
from ziplan.runtimes.deepspeed import knobs
from ziplan.runtimes.deepspeed.facts import Facts
from ziplan.runtimes.deepspeed.fetches import fetches
from ziplan.runtimes.deepspeed.host import WHOLE_GRADIENTS
from ziplan.runtimes.deepspeed.shards import reached, reached_by_rank
from ziplan.workload.load import load_workload

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
        reentrant=False,
        **fields,
    ):
        folder.mkdir(exist_ok=True)
        config = shape(model) if isinstance(model, str) else model
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
        self.ranks_per_node = min(RANKS_PER_NODE, world.ranks)
        self.ranks_that_ran = 1 if world.simulated else world.ranks
        with recomputing(reentrant):
            self.plan = deepspeed.settle(self.cluster, self.workload, plan)
            self.predicted = estimate(self.cluster, self.workload, deepspeed, self.plan)
            files = deepspeed.emit(self.cluster, self.workload, self.plan)
            self.fetched = self._fetched(reentrant)
        kind = "reentrant" if reentrant else "non_reentrant"
        kind = "none" if checkpointing == Checkpointing.NONE else kind
        spec = Spec(config, sequence_length=TOKENS, checkpointing=kind, trainable=trainable)
        self.done = run(json.loads(files["ds_config.json"]), spec, world, folder / "run")

    def _fetched(self, reentrant):
        """What one micro-step fetches by the played coordinator, under the settings that are emitted."""
        model = self.workload.model
        asked = knobs.policy(model, self.plan, knobs.knobs(model, self.plan, "nvme"))
        return fetches(model, int(self.plan.activation_checkpointing), reentrant, asked)

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

    def gpu(self, name):
        """Bytes of a GPU's lines of this name: (low, high)."""
        found = [line for line in self.predicted.ledger.lines if (line.tier, line.name) == ("hbm", name)]
        return sum(line.low for line in found), sum(line.high for line in found)

    def locked_on_rank_0(self):
        """Bytes that it pins: an even share of its node's, but the whole gradients that are its own."""
        model, dp = self.workload.model, self.plan.dp_degree
        whole = self.lines("dram", WHOLE_GRADIENTS)
        node = reached(model, dp, self.ranks_per_node, True).node
        own = whole * self.ranks_per_node / node * self._owned()
        return self.lines("dram", pinned=True) - whole + own

    def accumulated_on_rank_0(self):
        """Elements that it copies to the host and back to add gradients up there, below stage 3."""
        steps, master = self.plan.accumulation_steps, self.workload.training.master_precision
        if self.plan.zero_stage != 2 or "dram" not in self.plan.placement.optimizer or steps == 1:
            return {}
        owned = (
            self._owned() if master == "fp32" else self.workload.model.trainable_params / self.plan.dp_degree
        )
        return {"down": steps * owned, "up": (steps - 1) * owned}

    def _owned(self):
        """Elements of the tensors that rank 0 owns a part of, each whole."""
        return int(reached_by_rank(self.workload.model, self.plan.dp_degree, True)[0][0])


@contextlib.contextmanager
def recomputing(reentrant):
    """Have ziplan plan for the other checkpoint function than the one that its launch files use."""
    with mock.patch.object(Facts, "reentrant", reentrant):
        yield


def close(value, rel=0.01):
    return pytest.approx(value, rel=rel)


def check(case, rel=0.01):
    """Swap traffic, swap files, page-locked memory: what was predicted against what was counted."""
    done = case.done
    read, written = case.predicted.traffic.get("nvme", (0.0, 0.0))
    assert done.params == case.workload.model.params
    assert sum(done.read_bytes.values()) == close(read, rel)
    assert sum(done.write_bytes.values()) == close(written, rel)
    assert sum(done.file_bytes.values()) / case.ranks_that_ran == close(case.lines("nvme"), rel)
    assert sum(done.locked_bytes.values()) == close(case.locked_on_rank_0(), rel)
    assert done.last["accumulated_elements"] == case.accumulated_on_rank_0()


def check_states(case, tier):
    """Master weights and the optimizer's own state in memory."""
    ranks = case.ranks_per_node if tier == "dram" else 1
    lines = [line for line in case.predicted.ledger.lines if line.tier == tier]
    master = sum(line.high for line in lines if line.name in ("master weights", "pinned master weights"))
    moments = sum(line.high for line in lines if line.name == "optimizer state")
    assert case.done.data["states"]["master"] == close(master / ranks)
    assert case.done.data["states"]["moments"] == close(moments / ranks)
