"""Run forward of a small model that an emitted set-up module shards, as rank 0 of several, and count.

A program of the nursery; a job has `setup` (the module's path), `model` (a Hugging Face config), `trained`
and `world`.
"""

import importlib.util

import torch
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM

from engine.fsdp_train import IMPORTS, Meter

__all__ = ["IMPORTS", "run"]


def run(job):
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=job["world"])
    spec = importlib.util.spec_from_file_location("fsdp_setup_reference", job["setup"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**job["model"]))
    model.config.use_cache = False
    if not job["trained"]:
        model.eval().requires_grad_(False)
    meter = Meter()
    optimizer = module.setup(model)
    tokens = torch.zeros((1, 8), dtype=torch.long)
    for _ in range(2):
        meter.counts.clear()
        with torch.no_grad():
            model(input_ids=tokens)
    held = sum(p.to_local().nbytes for p in model.parameters())
    return {"optimizer": optimizer is not None, "gathered": meter.counts["gathered_bytes"], "held": held}
