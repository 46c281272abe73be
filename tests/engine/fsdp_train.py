"""Train a small Hugging Face model with an emitted `fsdp_setup.py`, on the CPU, and count.

A program of the nursery, one process per rank. A job has `setup` (the path of the module), `model` (a
Hugging Face config), `sequence_length`, `rank`, `world`, `simulated`, `spread` (weights on rank 0 alone)
and `store`. Without a GPU nothing is pinned or copied over a host link: what asks for it is counted where
it asks.
"""

from __future__ import annotations

import contextlib
import importlib.util
import weakref
from collections import Counter

import torch
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as collectives
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as param_group
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.utils._python_dispatch import TorchDispatchMode

from engine.adapters import prepare_training

STEPS = 3
IMPORTS = (
    "accelerate",
    "torch.testing._internal.distributed.fake_pg",
    "transformers.models.llama.modeling_llama",
)
"""What a run imports, for the nursery to import before it."""


class Meter:
    """Bytes and elements since the last start, and what is pinned."""

    def __init__(self):
        self.counts = Counter()
        self.pinned = {}
        self.watch(collectives.DefaultAllGather, "gathered", "output_tensor")
        self.watch(collectives.DefaultReduceScatter, "reduced", "input_tensor")
        self.watch_copies()
        self.watch_pinning()

    def watch(self, collective, name, whole):
        original = collective.__call__

        def counted(this, **arguments):
            self.counts[f"{name}_elements"] += arguments[whole].numel()
            self.counts[f"{name}_bytes"] += arguments[whole].nbytes
            return original(this, **arguments)

        collective.__call__ = counted

    def watch_copies(self):
        original = FSDPParam.all_gather_inputs.fget

        def counted(param):
            self.counts["copied_bytes"] += param._sharded_param_data.nbytes if param.offload_to_cpu else 0
            return original(param)

        FSDPParam.all_gather_inputs = property(counted)

    def watch_pinning(self):
        def pin(tensor):
            self.pinned[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        torch.Tensor.pin_memory = pin
        torch.Tensor.is_pinned = lambda tensor: tensor.untyped_storage().data_ptr() in self.pinned


class Watch(TorchDispatchMode):
    """The most bytes of FSDP2's working memory that stand at once, looked at after every operation."""

    def __init__(self, model):
        super().__init__()
        self.params = [param for group in all_groups(model) for param in group.fsdp_params]
        comms = (collectives.DefaultAllGather, collectives.DefaultReduceScatter)
        self.buffers = {comm: weakref.WeakSet() for comm in comms}
        self.peak, self.reducing = Counter(), []
        reduce = param_group.foreach_reduce

        def reducing(params, gradients, *arguments):
            self.reducing = gradients  # emptied once they are copied
            return reduce(params, gradients, *arguments)

        param_group.foreach_reduce = reducing
        original = collectives.DefaultAllocMixin.allocate

        def kept(comm, *arguments, **options):
            buffer = original(comm, *arguments, **options)
            self.buffers[type(comm)].add(buffer)
            return buffer

        collectives.DefaultAllocMixin.allocate = kept

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        unsharded = [getattr(param, "_unsharded_param", None) for param in self.params]
        gathered, reduced = (stored(buffers) for buffers in self.buffers.values())
        now = {
            "gathered parameters": stored(t for param in self.params for t in param.all_gather_outputs),
            "gather buffers": gathered,
            "gradients before they are reduced": reduced
            + stored(self.reducing)
            + sum(p.grad.nbytes for p in unsharded if p is not None and p.grad is not None),
        }
        now["all"] = sum(now.values())
        self.peak |= Counter(now)
        return result


def stored(tensors):
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def all_groups(model):
    return [group for module in model.modules() for group in sharded_groups(module)]


def join(job):
    if job["simulated"]:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        backend, store = "fake", FakeStore()
    else:
        backend, store = "gloo", torch.distributed.FileStore(job["store"], job["world"])
    torch.distributed.init_process_group(backend, store=store, rank=job["rank"], world_size=job["world"])


def imported(path):
    spec = importlib.util.spec_from_file_location("fsdp_setup", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(job):
    """The model, and its weights where they are to be spread from rank 0."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    shape = AutoConfig.for_model(**job["model"])
    model = AutoModelForCausalLM.from_config(shape, attn_implementation="sdpa", dtype=torch.float32).train()
    if not job["spread"]:
        return model, None
    weights = model.state_dict() if job["rank"] == 0 else None
    with parameters_on_meta():
        empty = AutoModelForCausalLM.from_config(shape, attn_implementation="sdpa", dtype=torch.float32)
    return empty.train(), weights


@contextlib.contextmanager
def parameters_on_meta():
    """As `accelerate.init_empty_weights` does it, buffers in memory."""
    from accelerate import init_empty_weights

    with init_empty_weights(include_buffers=False):
        yield


def held(model, optimizer):
    """Bytes of one rank's state."""
    groups = all_groups(model)
    params = [param for group in groups for param in group.fsdp_params]
    kinds = ("exp_avg", "exp_avg_sq", "momentum_buffer")
    kept = [state[kind] for state in optimizer.state.values() for kind in kinds if kind in state]
    moments = [moment for moment in kept if moment is not None]
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return {
        "params": sum(param._sharded_param_data.nbytes for param in params),
        "grads": sum(grad._local_tensor.nbytes for grad in grads),
        "moments": sum(moment._local_tensor.nbytes for moment in moments),
        "groups": len(groups),
    }


def sharded_groups(module):
    state = getattr(module, "_get_fsdp_state", None)
    return state()._fsdp_param_groups if state else []


def train_step(job, setup, model, optimizer, meter, batches):
    meter.counts.clear()
    for _ in range(setup.ACCUMULATION_STEPS):
        shape = (setup.MICRO_BATCH_SIZE, job["sequence_length"])
        tokens = torch.randint(0, job["model"]["vocab_size"], shape, generator=batches)
        loss = model(input_ids=tokens, labels=tokens).loss / setup.ACCUMULATION_STEPS
        loss.backward()
    optimizer.step()
    found = {**meter.counts, **held(model, optimizer), "loss": loss.item() * setup.ACCUMULATION_STEPS}
    optimizer.zero_grad()
    return found


def run(job):
    meter = Meter()
    join(job)
    setup = imported(job["setup"])
    model, weights = build(job)
    prepare_training(model, job["trainable"])
    elements = sum(parameter.numel() for parameter in model.parameters())
    optimizer = setup.setup(model, weights)
    compiled = sum(module._compiled_call_impl is not None for module in model.modules())
    batches = torch.Generator().manual_seed(1)
    steps = [train_step(job, setup, model, optimizer, meter, batches) for _ in range(STEPS)]
    with Watch(model) as watch:
        train_step(job, setup, model, optimizer, meter, batches)
    live = {param.data_ptr() for param in (p._local_tensor for p in model.parameters())}
    pinned = sum(t.untyped_storage().nbytes() for pointer, t in meter.pinned.items() if pointer in live)
    found = {"elements": elements, "steps": steps, "pinned": pinned, "compiled": compiled}
    return {**found, "peak": dict(watch.peak)}
