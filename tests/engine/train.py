"""Train a small Hugging Face model for a few steps with the real DeepSpeed on the CPU, and count.

A program of the nursery, one process per rank. A job has `config` (a DeepSpeed config), `spec` (see
`harness.Spec`), `rank`, `world`, `simulated` and `store`.
When simulated, this one process is rank 0 of `world` and its peers are torch's fake process group:
sizes, files and traffic are those of a real run, values are not.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path

import torch

from engine.adapters import prepare_training
from engine.meter import Meter, file_class
from engine.ops import install

IMPORTS = (
    "cpuinfo",
    "deepspeed",
    "deepspeed.runtime.swap_tensor.partitioned_optimizer_swapper",
    "deepspeed.runtime.swap_tensor.pipelined_optimizer_swapper",
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "deepspeed.runtime.zero.stage3",
    "torch.testing._internal.distributed.fake_pg",
    "transformers.models.llama.modeling_llama",
)
"""What a run imports, for the nursery to import before it."""


def prepare_environment(job):
    rank, world = str(job["rank"]), str(job["world"])
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=world, LOCAL_SIZE=world)


def join(job):
    """Join the process group: gloo through a file, or the fake one."""
    import deepspeed

    if job["simulated"]:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        backend, store = "fake", FakeStore()
    else:
        backend, store = "gloo", torch.distributed.FileStore(job["store"], job["world"])
    torch.distributed.init_process_group(backend, store=store, rank=job["rank"], world_size=job["world"])
    deepspeed.init_distributed(dist_backend=backend, verbose=False)


@contextlib.contextmanager
def nothing_uninitialized():
    """Zeros for what a model makes with `torch.empty`.

    transformers initializes no partitioned parameters, and stacked experts and routers do not do it
    themselves; what happened to be in memory would now and then be NaN, and steps be skipped.
    """
    empty = torch.empty
    torch.empty = lambda *sizes, **options: empty(*sizes, **options).zero_()
    try:
        yield
    finally:
        torch.empty = empty


def build_model(spec, config):
    """The model of the spec; parameters are partitioned as they are made where ZeRO-3 would."""
    import deepspeed
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    torch.manual_seed(0)
    shape = AutoConfig.for_model(**spec["model"])
    kind = AutoModelForSeq2SeqLM if shape.is_encoder_decoder else AutoModelForCausalLM
    kind._model_mapping[type(shape)]  # its module cannot be imported while parameters are partitioned
    zero3 = config.get("zero_optimization", {}).get("stage") == 3
    scope = deepspeed.zero.Init(config_dict_or_path=config) if zero3 else contextlib.nullcontext()
    with scope, nothing_uninitialized():
        model = kind.from_config(shape, attn_implementation="sdpa")
        prepare_training(model, spec["trainable"])
    model.config.use_cache = False
    if spec["checkpointing"] != "none":
        reentrant = spec["checkpointing"] == "reentrant"
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    return model.train()


def train_step(engine, spec, meter, batches):
    """One optimizer step; its loss and what it moved."""
    meter.start_step()
    for _ in range(engine.gradient_accumulation_steps()):
        loss = micro_step(engine, spec, batches)
        meter.unswapped_gradients(engine.optimizer)
        engine.step()
    return {
        "loss": float(loss),
        "read_bytes": dict(meter.reads),
        "write_bytes": dict(meter.writes),
        "accumulated_elements": dict(meter.accumulated),
        "reached_modules": meter.reached,
        "gather_calls": meter.gather_calls,
        "gathered_elements": sum(count for _, _, count in meter.gathers),
        "gathers": [[meter.names.get(key, key), forward] for forward, key, _ in meter.gathers],
    }


def micro_step(engine, spec, batches):
    shape = (engine.train_micro_batch_size_per_gpu(), spec["sequence_length"])
    tokens = torch.randint(0, spec["model"]["vocab_size"], shape, generator=batches)
    loss = engine(input_ids=tokens, labels=tokens).loss
    engine.backward(loss)
    return loss


def buffers(optimizer):
    """Sizes that the optimizer settled on."""
    sizes = getattr(optimizer, "fp16_partitioned_groups_flat_numel", None)
    found = {"sub_groups": list(sizes or ())}
    for name in (
        "grad_partitions_flat_buffer",
        "ipg_bucket_flat_buffer",
        "temp_grad_buffer_for_gpu_offload",
    ):
        tensor = getattr(optimizer, name, None)
        found[name] = None if tensor is None else tensor.nbytes
    return found


def held_states(optimizer):
    """Bytes of master weights, and of the optimizer's own state, that are in memory when training ends."""
    wrapped = getattr(optimizer, "optimizer", optimizer)
    kept = [
        t for state in wrapped.state.values() for t in state.values() if torch.is_tensor(t) and t.numel() > 1
    ]
    flat = getattr(optimizer, "fp32_partitioned_groups_flat", None) or getattr(
        optimizer, "single_partition_of_fp32_groups", ()
    )
    params = getattr(optimizer, "fp16_partitioned_groups_flat", ())
    shared = {tensor.data_ptr() for tensor in params if tensor is not None}
    own = [tensor for tensor in flat if tensor.data_ptr() not in shared]
    return {"master": sum(t.nbytes for t in own), "moments": sum(t.nbytes for t in kept)}


def swap_files(folders):
    """Bytes and number of this run's swap files by class."""
    paths = {path for folder in folders for path in Path(folder).rglob("*") if path.is_file()}
    sizes, counts = Counter(), Counter()
    for path in paths:
        sizes[file_class(path)] += path.stat().st_size
        counts[file_class(path)] += 1
    return {"bytes": dict(sizes), "counts": dict(counts)}


def swap_folders(config):
    zero = config.get("zero_optimization", {})
    sections = (zero.get("offload_param"), zero.get("offload_optimizer"))
    return [section["nvme_path"] for section in sections if section and section.get("nvme_path")]


def run(job):
    import deepspeed

    prepare_environment(job)
    meter = Meter()
    install(meter)
    meter.watch_engine()
    join(job)
    config, spec = job["config"], job["spec"]
    model = build_model(spec, config)
    meter.watch_model(model)
    params = sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters())
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    meter.watch_gradients(model, engine.optimizer)
    init = {"read_bytes": dict(meter.reads), "write_bytes": dict(meter.writes)}
    batches = torch.Generator().manual_seed(1 + job["rank"])
    steps = [train_step(engine, spec, meter, batches) for _ in range(spec["steps"])]
    torch.distributed.barrier()
    return {
        "params": params,
        "init": init,
        "steps": steps,
        "files": swap_files(swap_folders(config)),
        "peak": dict(meter.peak),
        "locked_bytes": meter.locked,
        "optimizer": type(engine.optimizer).__name__,
        "states": held_states(engine.optimizer),
        **buffers(engine.optimizer),
    }
