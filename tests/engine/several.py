"""Run several small models in one job with the real DeepSpeed on the CPU, an engine each, and count.

A program of the nursery. A job has `models` (each with
`name`, `config`, `shape`, `trained` and `one_value`), and with `rank`, `world`, `simulated` and `store`
as `engine.train` has them. In a step every model runs as a trainer of RLHF runs it: those that are not
trained first, forward alone, then each trained one forward, backward and through its optimizer.
"""

from __future__ import annotations

import contextlib
from collections import Counter

import torch

from engine.meter import Meter
from engine.ops import install
from engine.train import IMPORTS, join, prepare_environment, swap_files, swap_folders

__all__ = ["IMPORTS", "run"]

STEPS, TOKENS = 3, 2


def build(entry):
    """A model with its own head, its parameters partitioned as they are made where ZeRO-3 would."""
    import deepspeed
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

    torch.manual_seed(0)
    one_value = entry["one_value"]
    shape = AutoConfig.for_model(**entry["shape"], **({"num_labels": 1} if one_value else {}))
    factory = AutoModelForSequenceClassification if one_value else AutoModelForCausalLM
    factory._model_mapping[type(shape)]  # its module cannot be imported while parameters are partitioned
    zero3 = entry["config"]["zero_optimization"]["stage"] == 3
    scope = deepspeed.zero.Init(config_dict_or_path=entry["config"]) if zero3 else contextlib.nullcontext()
    with scope:
        model = factory.from_config(shape, attn_implementation="sdpa")
    model.config.use_cache = False
    return model.train() if entry["trained"] else model.eval().requires_grad_(False)


def engine_of(entry, model):
    import deepspeed

    given = {"model_parameters": model.parameters()} if entry["trained"] else {}
    return deepspeed.initialize(model=model, config=entry["config"], **given)[0]


def step(engines, batches, vocabulary):
    """One optimizer step of the job."""
    accumulation = engines[0][1].gradient_accumulation_steps()
    for _ in range(accumulation):
        tokens = torch.randint(0, vocabulary, (1, TOKENS), generator=batches)
        for entry, engine in engines:
            if not entry["trained"]:
                with torch.no_grad():
                    engine(input_ids=tokens)
        for entry, engine in engines:
            if entry["trained"]:
                loss = engine(input_ids=tokens).logits.float().square().mean()
                engine.backward(loss)
                engine.step()


def counted(meter, owners):
    """What one step moved, its gathers by model."""
    gathers = Counter()
    for _, key, elements in meter.gathers:
        gathers[owners[key]] += elements
    return {"read_bytes": dict(meter.reads), "write_bytes": dict(meter.writes), "gathers": dict(gathers)}


def run(job):
    prepare_environment(job)
    meter = Meter()
    install(meter)
    meter.watch_engine()
    join(job)
    engines, owners, params = [], {}, {}
    for entry in job["models"]:
        model = build(entry)
        owners |= {p.ds_id: entry["name"] for p in model.parameters() if hasattr(p, "ds_id")}
        params[entry["name"]] = sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters())
        engines.append((entry, engine_of(entry, model)))
    batches = torch.Generator().manual_seed(1 + job["rank"])
    for _ in range(STEPS):
        meter.start_step()
        step(engines, batches, job["models"][0]["shape"]["vocab_size"])
    torch.distributed.barrier()
    folders = [folder for entry in job["models"] for folder in swap_folders(entry["config"])]
    return {
        "params": params,
        "last": counted(meter, owners),
        "files": swap_files(folders),
        "locked_bytes": meter.locked,
        "optimizers": {entry["name"]: type(engine.optimizer).__name__ for entry, engine in engines},
    }
