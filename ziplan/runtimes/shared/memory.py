"""Ledger lines that are the model's, PyTorch's or the process's own, whatever the runtime."""

from __future__ import annotations

from ziplan.hardware.node import Node
from ziplan.laws.law import minimum, where
from ziplan.laws.memory import activation_bytes, allocator_slack, logits_bytes
from ziplan.runtimes.runtime import RUNNING, TRAINING, Ledger
from ziplan.runtimes.shared.facts import FP32_BYTES, Facts
from ziplan.workload.loss import INFERRED_LOGIT_BYTES, LOGIT_BYTES
from ziplan.workload.model import Model
from ziplan.workload.training import Training, Workload

GPU_CONTEXT = (0.3e9, 1.2e9)
"""Bytes of a CUDA or HIP context with its loaded kernels, by GPU and library version.

426 MiB with PyTorch 2.10 and CUDA 13 (https://github.com/unslothai/unsloth-zoo/pull/1053), 300 to 400 MB
since CUDA 11.7, which loads kernels when they are called
(https://github.com/pytorch/pytorch/issues/107667, 109888); what training loads brings it to 0.5 to 1.2 GB on
one GPU (memory in use less what PyTorch reserved: https://github.com/instructlab/instructlab/issues/2666,
https://github.com/kohya-ss/sd-scripts/issues/2029). CUDA 11.0 to 11.6 loaded all: 1,343 MiB
(https://huggingface.co/docs/transformers/model_memory_anatomy), 1,487 on an RTX 3090
(https://github.com/pytorch/pytorch/issues/49877).
"""

COLLECTIVE_BUFFERS = (0.1e9, 1.3e9)
"""Bytes of NCCL's channels on each GPU, when there is more than one: by group and number of channels.

544 to 688 MiB for a group of A100s with NVLink (https://github.com/NVIDIA/nccl/issues/964). Context and
groups together took from 0.4 GB on eight RTX 3080 (https://github.com/huggingface/trl/issues/3436) to 2.5 GB
on two nodes of A100 (https://github.com/hiyouga/LlamaFactory/issues/5590).
"""

HOPPER_BUFFERS = (0.5e9, 2.5e9)
"""The same where GPUs have NVLink 4 or later, whose bandwidth takes more channels and buffers of the switch.

1.06 GB with the context after a group is made, over 4 GB after the first all-to-all
(https://github.com/NVIDIA/nccl/issues/1685); 3.5 to 3.7 GB with the context in training on eight H200
(https://github.com/simplescaling/s1/issues/106).
"""

HOPPER_AND_LATER = frozenset(
    {"H20", "H100", "H200", "H800", "GH200", "B100", "B200", "B300", "GB200", "GB300"}
)
"""GPUs by the first word of their name that have NVLink 4 or 5, where their node has a fabric."""

EXPANDABLE_SLACK = 0.04
"""Share of a GPU's memory that PyTorch's allocator may hold without using it where its segments grow
(expandable_segments:True): assumed."""

ALLOCATOR_SLACK = 0.065
"""The same without: four of five published errors of language models that ran out say no more.

"Reserved but unallocated" over all that was reserved, after PyTorch had freed what it could: at most 2.7 % in
12 of 17 (issues DeepSpeed 3208, 3312, 4256, 4715; LlamaFactory 7532; axolotl 1717; torchtune 2071; trl 824;
stanford_alpaca 86; DeepSeek-Coder 78; transformers 10011; Qwen 1043), then 3.5 (s1 106), 6.5 (instructlab
2666), 10.5 (s1 106), 23 (LlamaFactory 5590) and 28 (trl 3436). In fine-tuning with stage 3, recomputation
and adapters GMLake finds 15 % at the mean and 33 % at the most (arXiv:2401.08156).
"""

PROCESS = (0.6e9, 5.0e9)
"""Resident host bytes of one training process before any model state, libraries and contexts.

PyTorch with a CUDA tensor takes 0.44 to 2.06 GB (https://github.com/pytorch/pytorch/issues/113326),
transformers, accelerate and DeepSpeed 0.15 GB more (imports of transformers 5 and DeepSpeed 0.19.8); a rank
of Megatron with stage 3 was seen at 5 GB (bigscience, experiments/gpt2-meg-ds-zero, the script's comment).
"""

WORKER = (0.07e9, 1.0e9)
"""Host bytes of a DataLoader worker of its own: a forked one dirties 66 MB (PyTorch 2.13, batches of 2,048
tokens), and copies what it touches of a data set that is made of Python objects."""

SCORES_KNOB = "attention, training.softmax"
BATCH_KNOB = "micro_batch_size, sequence_length, longest_sequence, activation_checkpointing"
LOGITS_KNOB = "micro_batch_size, sequence_length, longest_sequence, training.loss, the vocabulary"


def add_activations(
    book: Ledger, f: Facts, kept_on_gpu: float = 1.0, frozen_inputs_kept: float = 0.0
) -> None:
    """What forward keeps for backward, what backward recomputes, and the gradients that flow between layers.

    `kept_on_gpu` is the fraction of the kept activations that stays on the GPU; `frozen_inputs_kept`
    is 1 where the runtime keeps inputs of frozen linears that no gradient needs. Only low ends fall
    by them: modules that are written otherwise may keep them too.
    """
    acts, model = f.workload.activations, f.workload.model
    if not model.trainable_params:
        _add_inference(book, f)
        return
    sequence = float(f.workload.training.longest)
    # A layer without gradients keeps nothing, but its input where it is checkpointed.
    layers = float(model.layer_count) * (f.full + (1 - f.full) * f.by_reach(lambda swept: swept.layers))
    scores = (acts.attention_scores_low * sequence, acts.attention_scores_high * sequence)
    unread = (1 - frozen_inputs_kept) * acts.frozen_inputs
    whole = (acts.none_low - unread + scores[0], acts.none_high + scores[1])
    selective = acts.selective_low - (1 - frozen_inputs_kept) * acts.selective_frozen_inputs
    modes = zip((selective, acts.selective_high), whole, strict=True)
    kept = [_by_mode(f, f.element * model.d_model, selective, none) for selective, none in modes]
    low, high = (of_tokens(f, "activations kept for backward", layers, each, kept_on_gpu) for each in kept)
    book.add("activations", f.gpu, ("forward", "backward"), high, low=low, knob=BATCH_KNOB)
    again = [f.full * none + f.selective * score for none, score in zip(whole, scores, strict=True)]
    low, high = (of_tokens(f, "one layer recomputed", 1.0, each) for each in again)
    book.add("recomputed layer", f.gpu, ("backward",), high, low=low, knob=BATCH_KNOB)
    flowing = of_tokens(f, "gradients of activations in flight", 1.0, f.element * 2 * _widest(model))
    book.add("activation gradients", f.gpu, ("backward",), flowing, low=flowing / 2, knob=BATCH_KNOB)
    _add_scores(book, f)


def _add_inference(book: Ledger, f: Facts) -> None:
    """Without backward nothing is kept: what is alive inside one layer, from one module's tensors to all."""
    acts, model = f.workload.activations, f.workload.model
    whole = acts.none_high + acts.attention_scores_high * float(f.workload.training.longest)
    low, high = (
        of_tokens(f, "activations inside one layer", 1.0, each)
        for each in (f.element * _widest(model), whole)
    )
    book.add("activations of one layer", f.gpu, ("forward",), high, low=minimum(low, high), knob=BATCH_KNOB)
    _add_scores(book, f)


def _widest(model: Model) -> float:
    """Elements that go into and out of a layer's widest module, per token."""
    return max(o.token_features for o in model.operators if o.block and o.kind in ("linear", "experts"))


def _add_scores(book: Ledger, f: Facts) -> None:
    """Attention without a fused kernel may take the softmax of one layer's scores in fp32."""
    model, training = f.workload.model, f.workload.training
    wide = float(model.attention_heads * training.longest)
    low, high = (
        of_tokens(f, "one layer's attention scores in fp32", 1.0, wide * each)
        for each in fp32_scores(training)
    )
    book.add("attention scores in fp32", f.gpu, ("forward", "backward"), high, low=low, knob=SCORES_KNOB)


def fp32_scores(training: Training) -> tuple[float, float]:
    """Bytes of a score of eager attention while its softmax is taken, beside what is kept: (low, high)."""
    if training.attention != "eager" or training.softmax == "16-bit":
        return 0.0, 0.0
    return (FP32_BYTES if training.softmax == "fp32" else 0.0), FP32_BYTES


def _by_mode(f: Facts, full: float, selective: float, none: float) -> float:
    return f.full * full + f.selective * selective + (1 - f.full - f.selective) * none


def of_tokens(f: Facts, label: str, layers: float, per_token: float, share: float = 1.0) -> float:
    """Bytes of one rank's tokens in so many layers."""
    return f.derivation.apply(
        activation_bytes,
        label,
        tokens_per_rank=f.peak_tokens,
        layer_count=layers,
        activation_bytes_per_token=per_token,
        share=share,
        ranks_per_instance=1.0,
    )


def logit_bytes(workload: Workload) -> tuple[float, float]:
    """Bytes per token and vocabulary entry of logits and loss at their peak: (low, high)."""
    trains = workload.model.trainable_params > 0
    return LOGIT_BYTES[workload.training.loss] if trains else INFERRED_LOGIT_BYTES


def add_logits(book: Ledger, f: Facts) -> None:
    """Logits and loss, and the logits that the model's output still holds during backward."""
    model = f.workload.model
    low, high, held = (
        f.derivation.apply(
            logits_bytes,
            "logits and loss",
            tokens_per_rank=f.peak_tokens,
            vocab_size=model.logits_share * float(model.vocab_size),
            logit_bytes_per_token=per_token,
        )
        for per_token in (*logit_bytes(f.workload), f.element * (f.workload.training.loss != "in-place"))
    )
    book.add("logits and loss", f.gpu, ("forward",), high, low=low, knob=LOGITS_KNOB)
    book.add("logits held by the output", f.gpu, ("backward",), held, low=0.0, knob=LOGITS_KNOB)


def group_buffers(node: Node) -> tuple[float, float]:
    """Bytes on each GPU of what NCCL has for one group: (low, high)."""
    later = node.gpu.name.partition(" ")[0] in HOPPER_AND_LATER
    return HOPPER_BUFFERS if later and node.fabric is not None else COLLECTIVE_BUFFERS


def add_gpu_overhead(book: Ledger, f: Facts) -> None:
    """What the driver, NCCL and PyTorch's allocator take."""
    low, high = GPU_CONTEXT
    book.add("GPU context", f.gpu, ("load", *RUNNING), high, low=low)
    many = where(f.plan.dp_degree > 1, 1.0, 0.0)
    low, high = group_buffers(f.cluster.node)
    book.add("collective buffers", f.gpu, RUNNING, many * high, low=many * low, knob="NCCL_BUFFSIZE")
    capacity = f.cluster.node.tiers[f.gpu].capacity
    share = EXPANDABLE_SLACK if f.workload.training.expandable_segments else ALLOCATOR_SLACK
    slack = f.derivation.apply(allocator_slack, "allocator slack", capacity=capacity, share=share)
    book.add("allocator slack", f.gpu, TRAINING, slack, low=0.0, knob="PYTORCH_ALLOC_CONF")


def add_processes(book: Ledger, f: Facts, host: str) -> None:
    """What every training process takes of its node's memory before any model."""
    low, high = PROCESS
    every = ("load", *RUNNING)
    book.add("processes and libraries", host, every, f.ranks * high, low=f.ranks * low, knob="ranks per node")
    low, high = (f.ranks * (f.workload.training.data_workers or 0) * each for each in WORKER)
    book.add("data-loader workers", host, TRAINING, high, low=low, knob="training.data_workers")
