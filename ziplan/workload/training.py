"""Training settings, as a model.yaml or the command line states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from ziplan.files.record import FileRecord
from ziplan.units import Launcher, Precision
from ziplan.workload.loading import Loading
from ziplan.workload.loss import Loss
from ziplan.workload.model import ActivationBytes, Kernels, Model, Operator
from ziplan.workload.optimizers import OptimizerName

if TYPE_CHECKING:
    from ziplan.workload.companions import Companion


class Settings(FileRecord):
    """A part of a training."""


MOST_WORKERS = 1024
"""More worker processes of one rank than this are a slip."""

MOST_THREADS = 4096
"""No node has as many cores; a value above it is a slip."""

MOST_SEQUENCES = 100_000_000
"""No step of training takes more; a value above it is a slip."""


LARGEST_RANK = 65_536
"""No adapter's rank comes near the width of a model this wide; a value above it is a slip."""


class Optimizer(Settings):
    """The optimizer and its settings."""

    kind: OptimizerName = "adamw"
    learning_rate: float = Field(default=1e-5, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    fused: bool | None = True
    """Whether one kernel updates a parameter, as in DeepSpeed's own optimizers; PyTorch's default one makes
    a temporary as large as what it updates. None where it is not known."""


ALL_LINEAR = "all-linear"
"""PEFT's word for every linear in the layers as a target."""


class Adapters(Settings):
    """Low-rank adapters, of rank `lora_rank`, beside the frozen linears that `targets` name.

    A target is an operator's name or the end of one from a dot on, as in `q_proj`, or `all-linear`.
    """

    lora_rank: int = Field(ge=1, le=LARGEST_RANK)
    targets: tuple[str, ...] = Field(min_length=1)

    def targeted(self, operator: Operator) -> bool:
        """Whether a target names the operator."""
        name = operator.name
        named = any(name == target or name.endswith(f".{target}") for target in self.named_targets)
        return named or (operator.block and ALL_LINEAR in self.targets)

    @property
    def named_targets(self) -> tuple[str, ...]:
        """The targets that are names."""
        return tuple(target for target in self.targets if target != ALL_LINEAR)


class Frozen(Settings):
    """Parts that training leaves alone: names of modules, ends of names from a dot on, or what holds them."""

    frozen: tuple[str, ...] = Field(min_length=1)


def kind_of_trainable(value: object) -> str:
    """Which of the three a file or a flag means, so that only its problems are told."""
    if isinstance(value, dict | Settings):
        return "frozen" if isinstance(value, Frozen) or "frozen" in value else "adapters"
    return "all"


Trainable = Annotated[
    Annotated[Literal["all"], Tag("all")]
    | Annotated[Adapters, Tag("adapters")]
    | Annotated[Frozen, Tag("frozen")],
    Discriminator(kind_of_trainable),
]


def kind_of_threads(value: object) -> str:
    """Whether a file or a flag means a number of threads, so that only its problem is told."""
    return "launcher" if isinstance(value, str) else "number"


Threads = Annotated[
    Annotated[Launcher, Tag("launcher")]
    | Annotated[int, Field(ge=1, le=MOST_THREADS, strict=True), Tag("number")],
    Discriminator(kind_of_threads),
]
"""OpenMP threads of a rank, by number or by what starts the run."""


class TrainingChoices(Settings):
    """Training settings as a file or the command line states them, any of them left out."""

    sequence_length: int | None = Field(default=None, ge=1)
    longest_sequence: int | None = Field(default=None, ge=1)
    """Tokens of the longest sample, to which a micro-batch may be padded: for memory, not for time."""
    packing: bool = False
    """Whether samples are put one behind the other to fill a sequence, none attending to another."""
    mean_sample_length: float | None = Field(default=None, gt=0)
    """Tokens of a packed sample."""
    global_batch_size: int | None = Field(default=None, ge=1, le=MOST_SEQUENCES)
    micro_batch_size: int | None = Field(default=None, ge=1, le=MOST_SEQUENCES)
    accumulation_steps: int | None = Field(default=None, ge=1, le=MOST_SEQUENCES)
    precision: Precision | None = None
    master_precision: Literal["fp32", "bf16"] = "fp32"
    """Of the weights that the optimizer steps, of its moments and of the gradients that it takes."""
    optimizer: Optimizer = Field(default_factory=Optimizer)
    activation_checkpointing: Literal["none", "selective", "full", "auto"] = "auto"
    attention: Literal["flash", "eager"] = "flash"
    attention_kernel: Literal["flash-2"] | None = None
    """The kernel of fused attention; None: any."""
    kernels: Kernels | None = None
    """What computes a layer between its matrix products; None: what the runtime's users run."""
    loss: Loss | None = None
    """How the loss is made of 16-bit logits. None where it is not known."""
    softmax: Literal["fp32", "16-bit"] | None = None
    """In what eager attention takes the softmax of its scores. None where it is not known."""
    dropout: bool | None = None
    """Whether a model that has dropout trains with it. None where it is not known."""
    trainable: Trainable = "all"
    loading: Loading = Field(default_factory=Loading)
    data_workers: int | None = Field(default=None, ge=0, le=MOST_WORKERS)
    """DataLoader's worker processes of each rank."""
    optimizer_threads: Threads | None = None
    """OpenMP threads of each rank, by number or by what starts the run; None: cores divided among them."""
    gradient_clipping: bool | None = None
    """Whether gradients are clipped by their norm; None: as if, which most scripts do."""
    saving: Literal["sharded", "gathered"] = "sharded"
    """Whether each rank saves its own shard, or one rank the whole model."""
    pinned_rounding: bool = False
    """Whether PyTorch rounds pinned blocks up to powers of two: its default, which emitted files turn off."""
    expandable_segments: bool = True
    """Whether PyTorch's allocator has segments on the GPU that grow, as emitted files ask; by default not."""

    @model_validator(mode="after")
    def _kernel_of_fused_attention(self) -> TrainingChoices:
        if self.attention_kernel is not None and self.attention == "eager":
            raise ValueError(
                "attention_kernel names the kernel of fused attention: it goes with attention: flash"
            )
        return self


class Training(TrainingChoices):
    """What one training run does. None means that the solver decides."""

    sequence_length: int = Field(ge=1)

    @property
    def longest(self) -> int:
        """Tokens of a sequence that memory is planned for."""
        return self.longest_sequence or self.sequence_length

    @property
    def attended(self) -> float:
        """Tokens of the piece that a token is scored against, before what lies after it is masked.

        A flash kernel computes packed samples each on its own (of one length; where lengths spread
        it is more), eager attention masks the whole square.
        """
        alone = self.packing and self.attention == "flash" and self.mean_sample_length
        return float(self.mean_sample_length or 0) if alone else float(self.sequence_length)


@dataclass(frozen=True)
class Workload:
    """A model under given training settings, on GPUs whose precision is settled."""

    model: Model
    training: Training
    precision: Precision
    activations: ActivationBytes
    companions: tuple[Companion, ...] = ()
    """Models with engines of their own in the same job."""
    notes: tuple[str, ...] = ()
    """What the settings bring about that no plan shows."""

    @property
    def trainable_params(self) -> int:
        """Parameters that training changes."""
        return self.model.trainable_params
