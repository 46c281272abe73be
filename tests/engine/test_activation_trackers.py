"""Activation memory as PyTorch's own tracker counts it on tensors without data, beside ziplan's.

Two shipped models of their real widths, of four layers; nothing is computed, so neither memory nor a GPU
is needed. The tracker (`torch.distributed._tools.mem_tracker`) counts every storage that is alive, by
what it is for, and knows nothing of ziplan's formulas. Where the figures differ, the test says by what,
to the byte.
"""

import json
from functools import lru_cache
from typing import NamedTuple

import pytest
from workload.hugging_face import hf_config, hf_kind

from ziplan.estimate import estimate
from ziplan.hardware.profiles import load_cluster
from ziplan.plan import Checkpointing, Placement, Plan
from ziplan.runtimes import deepspeed
from ziplan.runtimes.shared.outside import LAST, OTHERS
from ziplan.workload.load import load_workload
from ziplan.workload.shapes import shape_config

# Importing transformers warns of its own deprecations.
pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

BATCH, SEQUENCE, MICRO_STEPS = 2, 512, 2
TOKENS = BATCH * SEQUENCE
CHANGED = {
    "gpt2": {"n_layer": 4, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0},
    "llama-3.1-8b": {"num_hidden_layers": 4},
}
"""Four layers are enough to see what one keeps; dropout inside attention has no fused kernel on a CPU."""

ELEMENT = 2


class Tracked(NamedTuple):
    """Bytes: kept by forward of one layer; the most that is alive in two micro-steps of a step."""

    layer: int
    peak: int


@lru_cache
def tracked(name, recomputes):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType, _ModState

    with FakeTensorMode():
        config = hf_config(shipped(name))
        kind = hf_kind(shipped(name))
        model = kind.from_config(config, attn_implementation="sdpa", dtype=torch.bfloat16).train()
        model.config.use_cache = False
        if recomputes:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        tokens = torch.zeros((BATCH, SEQUENCE), dtype=torch.long)
        tracker = MemTracker()
        tracker.track_external(model)
        with tracker:
            for _ in range(MICRO_STEPS):
                tracker.reset_mod_stats()  # of the modules, not the peak
                model(input_ids=tokens, labels=tokens).loss.backward()
        layers = model.model.layers if hasattr(model, "model") else model.transformer.h
        begins = [tracker.memory_tracking[layer].snapshots[_ModState.PRE_BW][0] for layer in layers]
        kept = [next(iter(begin.values()))[_MemRefType.ACT] for begin in begins]
        (peak,) = tracker.get_tracker_snapshot("peak").values()
    return Tracked(kept[3] - kept[2], peak["Total"])


class Planned(NamedTuple):
    """Lines of the ledger of a GPU, and the model that they are of."""

    lines: tuple
    model: object

    def between(self, *names, phases=("forward", "backward")):
        """Low and high end of these lines together, in the phase in which they are most."""
        of_phase = [[x for x in self.lines if x.name in names and phase in x.phases] for phase in phases]
        return tuple(
            max(sum(getattr(x, end) for x in lines) for lines in of_phase) for end in ("low", "high")
        )


def planned(folder, config, recomputes):
    (folder / "config.json").write_text(json.dumps(config))
    settings = {"sequence_length": SEQUENCE, "precision": "bf16", "attention": "flash"}
    workload, cluster = load_workload(str(folder), settings), load_cluster("dgx-a100-80g")
    place = {"hbm": 1.0}
    plan = Plan(
        dp_degree=1,
        zero_stage=0,
        placement=Placement(place, place, place),
        micro_batch_size=BATCH,
        accumulation_steps=MICRO_STEPS,
        activation_checkpointing=Checkpointing.FULL if recomputes else Checkpointing.NONE,
        prefetch_depth=0,
    )
    plan = deepspeed.settle(cluster, workload, plan)
    ledger = estimate(cluster, workload, deepspeed, plan).ledger
    return Planned(tuple(line for line in ledger.lines if line.tier == "hbm"), workload.model)


def shipped(name):
    return {**shape_config(name), **CHANGED[name]}


def more_than_kept(config, model):
    """Bytes of a token and layer in the high end that torch on a CPU keeps none or less of.

    The high end takes the output of a flash kernel once more for the linear after it, and of a
    tensor that LayerNorm keeps statistics of two in fp32 where the CPU has them in 16 bits; it has
    dropout's masks, a byte an element, after attention and after the MLP. What the tracker has more
    is a mask of attention: with tensors without data transformers cannot see that it is causal
    alone, and the kernel keeps it in 16 bits, a row of the sequence for each token.
    """
    mask = ELEMENT * SEQUENCE
    again = ELEMENT * model.d_model
    if config["model_type"] == "gpt2":
        dropout, statistics = 2 * model.d_model, 2 * 2 * (4 - 2)
        return again + dropout + statistics - mask
    return again - mask


@pytest.mark.parametrize("name", CHANGED)
def test_a_layer_keeps_what_the_tracker_counts(tmp_path, name):
    config = shipped(name)
    plan, found = planned(tmp_path, config, False), tracked(name, False)
    low, high = (end / plan.model.layer_count for end in plan.between("activations"))
    assert low <= found.layer <= high
    assert high - found.layer == TOKENS * more_than_kept(config, plan.model)


@pytest.mark.parametrize("name", CHANGED)
def test_a_recomputed_layer_keeps_its_input_alone(tmp_path, name):
    config = shipped(name)
    plan, found = planned(tmp_path, config, True), tracked(name, True)
    low, high = plan.between("activations")
    assert found.layer == low / plan.model.layer_count == high / plan.model.layer_count


WITHOUT_OPTIMIZER = (
    *("parameters", "gradients", "gradients of earlier micro-steps", "activations", "recomputed layer"),
    *("activation gradients", "logits and loss", "logits held by the output", LAST, OTHERS),
)
"""Lines of what the tracker sees where there is no optimizer, allocator or GPU."""


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("name", CHANGED)
def test_the_peak_of_a_step_lies_in_the_range(tmp_path, name, recomputes):
    plan, found = planned(tmp_path, shipped(name), recomputes), tracked(name, recomputes)
    low, high = plan.between(*WITHOUT_OPTIMIZER)
    assert low <= found.peak <= high


@pytest.mark.parametrize("name", CHANGED)
def test_the_peak_differs_by_what_is_known(tmp_path, name):
    """The high end has what layers keep less of on a CPU, and fp32 logits that nobody holds here."""
    plan, found = planned(tmp_path, shipped(name), False), tracked(name, False)
    _, high = plan.between(*WITHOUT_OPTIMIZER)
    model = plan.model
    less = TOKENS * (model.layer_count * more_than_kept(shipped(name), model) + 4 * model.vocab_size)
    # Token and position ids, rotary cosines and the last norm's statistics are left.
    assert found.peak == pytest.approx(high - less, rel=5e-5)
