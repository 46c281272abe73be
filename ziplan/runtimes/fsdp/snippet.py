"""`fsdp_setup.py`: the plan as a few lines of PyTorch that a training script imports."""

from __future__ import annotations

from ziplan.plan import Checkpointing
from ziplan.runtimes.fsdp.facts import Facts
from ziplan.runtimes.fsdp.optimizers import made
from ziplan.runtimes.shared.said import lines_of_train_py
from ziplan.runtimes.shared.train_py import recomputed_attention

DTYPES = {"fp32": "None", "fp16": "torch.float16", "bf16": "torch.bfloat16"}

COMPILED_BY = "fsdp_setup.setup, layer by layer"
"""What has layers compiled."""

TEMPLATE = '''"""Shard a model with PyTorch FSDP2 as planned. Made for torch 2.13.

    torch.cuda.set_device(local_rank)
    torch.distributed.init_process_group(fsdp_setup.BACKEND)
    optimizer = fsdp_setup.setup(model)
    for micro_batch in range(fsdp_setup.ACCUMULATION_STEPS): loss.backward()
    optimizer.step(); optimizer.zero_grad()

`model` has its parameters in @kept@: whole on every rank, or whole on rank 0 (given as `weights`, its
state dict) and on the meta device everywhere, with buffers in memory (`accelerate.init_empty_weights`
makes it so). What is not trained is frozen, and adapters are made, before `setup`.
Divide the loss by ACCUMULATION_STEPS; gradients are reduced in every micro-step.

@said@
"""

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

MICRO_BATCH_SIZE = @micro_batch_size@
ACCUMULATION_STEPS = @accumulation_steps@
BACKEND = "cpu:gloo,cuda:nccl"  # gradients on the host are clipped over gloo

DTYPE = @dtype@@scaler@
KEPT_IN_DTYPE = @sixteen@  # what is trained, its gradients and the optimizer's state
RECOMPUTE_LAYERS = @recompute@
RECOMPUTE_ATTENTION = @attention@
COMPILE_LAYERS = @compile@
OFFLOAD = @offload@


def layers(model):
    """The modules that repeat: entries of the model's lists, not of those inside of such an entry."""
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    inside = {id(module) for each in lists for entry in each for module in entry.modules()}
    return [entry for each in lists if id(each) not in inside for entry in each]


def setup(model, weights=None):
    """Shard `model` in place, one group a layer and one for the rest; returns its optimizer."""
    repeated = layers(model)
    if RECOMPUTE_ATTENTION:
        recompute_attention(model)
    if RECOMPUTE_LAYERS:
        model.config.use_cache = False  # keys and values would be cached twice
        chosen = {id(layer) for layer in repeated}
        apply_activation_checkpointing(model, check_fn=lambda module: id(module) in chosen)
        repeated = [module for module in model.modules() if id(getattr(module, CHECKPOINTED, None)) in chosen]
    if COMPILE_LAYERS:
        for layer in repeated:
            layer.compile()  # one graph a layer, recomputed or not, which FSDP2's hooks stay outside of
    for parameter in model.parameters():
        if DTYPE and (KEPT_IN_DTYPE or not parameter.requires_grad):
            parameter.data = parameter.data.to(DTYPE)  # what is frozen needs no more
    sharding = {
        "mp_policy": MixedPrecisionPolicy(param_dtype=DTYPE, reduce_dtype=DTYPE),
        "offload_policy": CPUOffloadPolicy(pin_memory=True) if OFFLOAD else OffloadPolicy(),
    }
    for layer in repeated:
        fully_shard(layer, reshard_after_forward=True, **sharding)
    @root@
    load(model, weights)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return @optimizer@


def recompute_attention(model):
    """Attention is computed again in backward, from queries, keys and values alone."""
@recomputed_attention@


CHECKPOINTED = "_checkpoint_wrapped_module"


def load(model, weights):
    """Give parameters on the meta device memory, and the values that rank 0 has."""
    if not any(parameter.is_meta for parameter in model.parameters()):
        return
    home = None if OFFLOAD else torch.accelerator.current_accelerator()
    home = home or torch.device("cpu")
    model._apply(lambda tensor: torch.empty_like(tensor, device=home) if tensor.is_meta else tensor)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    if KEPT_IN_DTYPE:
        weights = {name: value.to(DTYPE) for name, value in (weights or {}).items()}
    set_model_state_dict(model, weights or {}, options=options)
'''

ROOT = "fully_shard(model, **sharding)  # the root stays gathered from forward to backward"
INFERRING_ROOT = "fully_shard(model, reshard_after_forward=True, **sharding)  # no backward would reshard it"
SCALER = "  # scale the loss with torch.amp.GradScaler"


def setup_module(f: Facts) -> str:
    """The module's text."""
    kept = f.workload.training.master_precision
    values = {
        "micro_batch_size": int(f.plan.micro_batch_size),
        "accumulation_steps": int(f.plan.accumulation_steps),
        "dtype": DTYPES[f.workload.precision],
        "scaler": SCALER if f.workload.precision == "fp16" else "",
        "sixteen": kept != "fp32",
        "kept": f"{kept}, or is cast to it" if kept != "fp32" else kept,
        "recompute": f.plan.activation_checkpointing == Checkpointing.FULL,
        "attention": f.plan.activation_checkpointing == Checkpointing.SELECTIVE,
        "compile": f.workload.training.kernels == "compiled",
        "said": "\n".join(lines_of_train_py(f.workload, f.plan, "`setup`, layer by layer")),
        "recomputed_attention": "\n".join(f"    {line}" for line in recomputed_attention()),
        "offload": bool(f.offloaded),
        "root": ROOT if f.trained else INFERRING_ROOT,
        # A model of which nothing is trained has no optimizer.
        "optimizer": made(f.workload.training.optimizer, "trained") if f.trained else "None",
    }
    text = TEMPLATE
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text
