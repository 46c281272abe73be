"""Arguments and options that several commands take, their words, and how they are completed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from ziplan.cli.output import complain
from ziplan.errors import BadInput
from ziplan.units import Launcher


class Precision(str, Enum):
    """Number formats that training computes in."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"


class Checkpointing(str, Enum):
    """How many activations a layer keeps; auto leaves it to the solver."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"
    AUTO = "auto"


class Attention(str, Enum):
    """How attention is computed."""

    FLASH = "flash"
    EAGER = "eager"


class Kernels(str, Enum):
    """What computes a layer between its matrix products."""

    EAGER = "eager"
    FUSED = "fused"
    COMPILED = "compiled"


class OptimizerKind(str, Enum):
    """Optimizers."""

    ADAMW = "adamw"
    ADAMW_8BIT = "adamw_8bit"
    ADAFACTOR = "adafactor"
    LION = "lion"
    SGD = "sgd"


class Objective(str, Enum):
    """What the best plan is best at."""

    TIME = "time"
    GPUS = "gpus"
    COST = "cost"
    WEAR = "wear"


class Trainer(str, Enum):
    """Who runs the training loop."""

    NONE = "none"
    HUGGINGFACE = "huggingface"
    ACCELERATE = "accelerate"


class Form(str, Enum):
    """Forms of an answer, each by the word for it."""

    def __str__(self) -> str:
        return str(self.value)


class Format(Form):
    """Forms of an answer."""

    TEXT = "text"
    JSON = "json"


class SweepFormat(Form):
    """Forms of a sweep."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


class CheckFormat(Form):
    """Forms of a judgement: every form that some command has."""

    TEXT = "text"
    JSON = "json"
    MD = "md"
    CSV = "csv"
    GITHUB = "github"
    GITLAB = "gitlab"
    JUNIT = "junit"
    SARIF = "sarif"
    HTML = "html"


class Outcome(str, Enum):
    """What an uncertain verdict counts as."""

    PASS = "pass"  # noqa: S105 - a word, not a secret
    FAIL = "fail"


def completer(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A shell completer over names; a name that cannot be listed is no reason to fail there."""

    def complete(incomplete: str) -> list[str]:
        try:
            return [name for name in names() if name.startswith(incomplete)]
        except Exception:  # noqa: BLE001 - a shell's completion has nowhere to report to
            return []

    return complete


def _models() -> Iterable[str]:
    from ziplan.cli.inputs import model_names

    return model_names()


def _machines() -> Iterable[str]:
    from ziplan.cli.inputs import machine_names

    return machine_names()


def _runtimes() -> Iterable[str]:
    from ziplan.cli.inputs import runtime_names

    return runtime_names()


def a_path(text: str) -> Path:
    """A path that somebody wrote; an empty one, as an unset variable of a shell leaves it, is refused."""
    if not text.strip():
        raise typer.BadParameter("is empty, expected a path (`.` is this folder)")
    return Path(text)


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, show_default=False, **more)


FORMAT_VARIABLE = "ZIPLAN_FORMAT"


def format_option(forms: type[Form]) -> Any:
    """`--format` of a command that prints these forms; the environment sets the default where it can."""

    def chosen(context: typer.Context, param: typer.CallbackParam, value: Form) -> Form:
        source = context.get_parameter_source(str(param.name))
        given = source is not None and source.name == "COMMANDLINE"
        return value if given or context.params.get("json") else default_form(forms, value)

    said = f"Form of the answer. Default: {FORMAT_VARIABLE} where that is one of them, or text."
    return _option("--format", help=said, callback=chosen)


def default_form(forms: type[Form], otherwise: Form) -> Form:
    """The form that the environment asks for, or another one where this command does not print it."""
    asked = os.environ.get(FORMAT_VARIABLE, "")
    if not asked:
        return otherwise
    own, every = ([str(each) for each in kind] for kind in (forms, CheckFormat))
    if asked in own:
        return forms(asked)
    if asked not in every:
        raise BadInput.of(
            f"{asked!r:.40} is no form of an answer", file=FORMAT_VARIABLE, help=f"one of {', '.join(every)}"
        )
    complain(
        f"ziplan: hint: this command does not print {FORMAT_VARIABLE}={asked}, so {otherwise}; "
        f"it has {', '.join(own)}"
    )
    return otherwise


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A model.yaml, a Hugging Face config.json or its folder, or a shipped shape.",
        autocompletion=completer(_models),
    ),
]
ClusterArgument = Annotated[
    str,
    typer.Argument(
        metavar="CLUSTER",
        help="A cluster.yaml, a machine profile, or a name such as dgx-a100-80g or '4x dgx-h100'.",
        autocompletion=completer(_machines),
    ),
]
RuntimeOption = Annotated[
    str,
    _option(
        "--runtime",
        metavar="NAME",
        help="Training runtime. Default: deepspeed.",
        autocompletion=completer(_runtimes),
    ),
]
SetOption = Annotated[
    list[str] | None,
    _option(
        "--set", metavar="KEY=VALUE", help="Change the machine, e.g. tiers.dram.capacity='2 TiB'. Repeatable."
    ),
]
CalibrationOption = Annotated[
    Path | None,
    _option(
        "--calibration",
        metavar="FILE",
        parser=a_path,
        help="What your own runs gave, as `ziplan calibrate` writes it.",
    ),
]
SequenceLength = Annotated[
    int | None,
    _option(
        "--sequence-length",
        min=1,
        metavar="N",
        help="Tokens per sequence (encoder-decoders: in each of the two).",
    ),
]
GlobalBatchSize = Annotated[
    int | None,
    _option("--global-batch-size", min=1, metavar="N", help="Sequences per step over all ranks."),
]
MicroBatchSize = Annotated[
    int | None,
    _option("--micro-batch-size", min=1, metavar="N", help="Sequences per rank and micro-step."),
]
AccumulationSteps = Annotated[
    int | None, _option("--accumulation-steps", min=1, metavar="N", help="Micro-steps per optimizer step.")
]
PrecisionOption = Annotated[
    Precision | None,
    _option("--precision", help="Number format of compute. Default: bf16 where the GPU has it."),
]
CheckpointingOption = Annotated[
    Checkpointing | None,
    _option("--checkpointing", help="Activations recomputed in backward. Default: auto."),
]
AttentionOption = Annotated[
    Attention | None, _option("--attention", help="How attention is computed. Default: flash.")
]
KernelsOption = Annotated[
    Kernels | None,
    _option("--kernels", help="Norms, positions, functions. Default: eager; fused under megatron."),
]
OptimizerOption = Annotated[
    OptimizerKind | None, _option("--optimizer", help="The optimizer. Default: adamw.")
]


def some_threads(text: str) -> int | str:
    """A number of threads, or the word for what starts the run."""
    words = get_args(Launcher)
    if text in words:
        return text
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r:.40}: expected a number of threads, or one of {', '.join(words)}")
    return int(text)


OptimizerThreads = Annotated[
    str | None,
    _option(
        "--optimizer-threads",
        metavar="N|LAUNCHER",
        parser=some_threads,
        help="Threads of each rank on the host, or what starts the run: torchrun and accelerate give one, "
        "deepspeed all cores. Default: bound, cores divided among the ranks.",
    ),
]
LoraRank = Annotated[
    int | None,
    _option("--lora-rank", min=1, metavar="N", help="Train low-rank adapters of this rank, the rest frozen."),
]
LoraTargets = Annotated[
    str | None,
    _option(
        "--lora-targets",
        metavar="NAMES",
        help="Linears with adapters, as in q_proj,v_proj. Default: all-linear.",
    ),
]
CompanionOption = Annotated[
    list[str] | None,
    _option(
        "--companion",
        metavar="ROLE=MODEL",
        help="Another model of the job (reference, teacher, critic, reward). Repeatable.",
    ),
]
ObjectiveOption = Annotated[Objective, _option("--objective", help="What to be best at. Default: time.")]
TilingOption = Annotated[
    bool,
    _option(
        "--allow-tiling",
        help="Let the plan change the model's code: linears in tiles, checkpoints kept on the host.",
    ),
]
TrainerOption = Annotated[
    Trainer,
    _option("--trainer", help="Who runs the loop; adds the files that it reads. Default: none."),
]
NvmePathOption = Annotated[
    str | None,
    _option(
        "--nvme-path", metavar="PATH", help="Where every node's drives are mounted. Default: /local_nvme."
    ),
]
JsonOption = Annotated[bool, _option("--json", help="The same as --format json.")]
FormatOption = Annotated[
    Format,
    format_option(Format),
]
OutputOption = Annotated[
    Path | None,
    _option("--output", "-o", metavar="FILE", parser=a_path, help="Write the answer to FILE, not to stdout."),
]
OutOption = Annotated[
    Path | None,
    _option("--out", metavar="DIR", parser=a_path, help="Write the runtime's files and plan.yaml to DIR."),
]
