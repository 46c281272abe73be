"""Stage 3's coordinator under limits that a config states: what the engine does beside what was played."""

import json
from typing import NamedTuple

from engine.harness import Spec, World, run
from ziplan.plan import Checkpointing
from ziplan.runtimes.deepspeed.coordinator import Policy
from ziplan.runtimes.deepspeed.fetches import fetches
from ziplan.runtimes.deepspeed.knobs import PERSISTENCE_THRESHOLD
from ziplan.runtimes.deepspeed.leaves import LEAF_CLASSES
from ziplan.workload.load import load_model

KINDS = ("none", "non_reentrant", "reentrant")


class Limits(NamedTuple):
    """What a config says of the coordinator, in elements: a layer has 2.4 to 4.2 million."""

    prefetch: float
    live: float
    reuse: float


def config(limits, steps, **zero):
    section = {"stage": 3, "reduce_bucket_size": 10_000_000, **zero}
    section |= {"offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"}}
    section |= {
        "stage3_prefetch_bucket_size": int(limits.prefetch),
        "stage3_max_live_parameters": int(limits.live),
        "stage3_max_reuse_distance": int(limits.reuse),
    }
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": steps,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": section,
    }


def compared(folder, shape, kind, steps, limits, classes=LEAF_CLASSES, dropout=None, **zero):
    """The model, what the engine did and what was played: as many elements, and as many live."""
    (folder / "config.json").write_text(json.dumps(shape))
    model = load_model(str(folder))
    spec = Spec(shape, sequence_length=2, checkpointing=kind)
    done = run(config(limits, steps, **zero), spec, World(1), folder / "run")
    mode = Checkpointing.NONE if kind == "none" else Checkpointing.FULL
    policy = Policy(*limits, PERSISTENCE_THRESHOLD, steps > 1, classes)
    played = fetches(model, int(mode), kind == "reentrant", policy, dropout)
    persistent = sum(size * count for size, count, _ in model.tensors if size <= PERSISTENCE_THRESHOLD)
    assert done.last["gathered_elements"] == steps * played.elements
    assert done.peak["live_elements"] == persistent + played.peak_live
    return model, done, played
