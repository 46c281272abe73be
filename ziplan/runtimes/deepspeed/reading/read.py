"""`read_config`: a config that exists, whatever its form, as DeepSpeed would run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ziplan.errors import BadInput
from ziplan.files import Document, Place
from ziplan.files.document import Path as Keys
from ziplan.runtimes.deepspeed.reading.accelerate import (
    SCRIPT_DECIDES,
    Plugin,
    fill_in_plugin,
    fill_precision,
    made_config,
    plugin_of,
    prepare,
    refuse_beside_file,
)
from ziplan.runtimes.deepspeed.reading.batch import Batch
from ziplan.runtimes.deepspeed.reading.effects import tell_effects
from ziplan.runtimes.deepspeed.reading.fill import Filler
from ziplan.runtimes.deepspeed.reading.forms import Form, Opened, deepspeed_document, open_config
from ziplan.runtimes.deepspeed.reading.huggingface import (
    TRAINER,
    TrainerArguments,
    fill_from_arguments,
    fill_from_model,
    trainer_arguments,
)
from ziplan.runtimes.deepspeed.reading.kinds import AUTO
from ziplan.runtimes.deepspeed.reading.raw import read_mapping
from ziplan.runtimes.deepspeed.reading.remarks import Notes, Remark
from ziplan.runtimes.deepspeed.reading.settings import Settings, settings_of
from ziplan.runtimes.deepspeed.reading.unplanned import tell_unplanned
from ziplan.runtimes.deepspeed.reading.words import tell_words

Trainer = Literal["none", "huggingface", "accelerate"]


@dataclass(frozen=True)
class Question:
    """What is known beside the file; None where it is not.

    `ranks` are the GPUs of the machine, `hidden_size` the model's width. The others are for a config
    whose trainer is known and whose arguments are in no file.
    """

    ranks: int
    hidden_size: int | None = None
    trainer: Trainer | None = None
    micro_batch_size: int | None = None
    accumulation_steps: int | None = None
    precision: str | None = None


@dataclass(frozen=True)
class Reading:
    """A config, read. `settings` and `batch` are None where it is rejected, or where an input is missing.

    `config` is the mapping that DeepSpeed gets, `auto` replaced where a trainer replaces it.
    """

    form: Form
    trainer: Trainer
    file: str
    ranks: int
    remarks: tuple[Remark, ...]
    config: Mapping[str, Any]
    batch: Batch | None = None
    settings: Settings | None = None
    arguments: TrainerArguments | None = None
    plugin: Plugin | None = None
    document: Document | None = None
    """What the DeepSpeed config stands in: a file that `file` names, or that one itself."""
    within: Keys = ()
    """Where in the document it is."""
    outer: Document | None = None
    """What the Trainer's arguments stand in."""
    nodes: int | None = None
    """Nodes that accelerate starts its ranks on, where a config or a command line says so."""

    def place(self, path: Keys) -> tuple[str, Place]:
        """The file and place of a key of the DeepSpeed config (of the nearest part around it)."""
        assert self.document is not None
        return self.document.name, self.document.locate((*self.within, *path), key=True)

    @property
    def accepted(self) -> bool:
        """Whether DeepSpeed and the trainer take it, as far as reading tells."""
        return not any(remark.kind == "rejected" for remark in self.remarks)


def read_config(opened: Opened, question: Question) -> Reading:
    """A config of any form but a plan.yaml; BadInput where a file that it names cannot be read."""
    if opened.form == "deepspeed":
        return _bare(opened, question)
    if opened.form == "accelerate":
        return _accelerate(opened, question)
    if opened.form in ("arguments", "command"):
        return _arguments(opened, question)
    raise ValueError("a plan.yaml is a plan already")


def _bare(opened: Opened, question: Question) -> Reading:
    """A DeepSpeed config alone. `auto` in a batch size says that a trainer reads it."""
    data = opened.document.data
    batch = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    guessed = question.trainer is None and any(data.get(name) == AUTO for name in batch)
    trainer: Trainer = "huggingface" if guessed else question.trainer or "none"
    document, remarks = deepspeed_document(opened.path, opened.document.name, trainer != "none")
    notes = Notes(document)
    if guessed:
        at = next(name for name in batch if data.get(name) == AUTO)
        message = f"{at}: auto is for a trainer to replace: read as the Hugging Face Trainer reads it"
        notes.add("derived", (at,), message)
    ranks = _ranks(opened, question, notes, ())
    reading = Reading(opened.form, trainer, document.name, ranks, tuple(remarks), {})
    if trainer == "huggingface":
        return _under_trainer(reading, notes, document.data, _known(question, document.data), question)
    if trainer == "accelerate":
        return _under_accelerate(reading, notes, document.data, Plugin(), question)
    return _finished(reading, notes, document.data)


def _known(question: Question, data: Mapping[str, Any]) -> TrainerArguments:
    """Arguments of the Trainer where there is no file of them: what else is known.

    Steps of accumulation that nobody states are those of the config, since the Trainer takes no others.
    """
    given: dict[str, Any] = {}
    if question.micro_batch_size is not None:
        given["per_device_train_batch_size"] = question.micro_batch_size
        own = data.get("gradient_accumulation_steps")
        given["gradient_accumulation_steps"] = question.accumulation_steps or (own if type(own) is int else 1)
    if question.precision is not None:
        given |= {"bf16": question.precision == "bf16", "fp16": question.precision == "fp16"}
    return TrainerArguments(**given, known=frozenset({*given, "max_grad_norm"}))


def _accelerate(opened: Opened, question: Question) -> Reading:
    """accelerate's own config."""
    document, data = opened.document, opened.document.data
    outer = Notes(document)
    kind = str(data.get("distributed_type", "DEEPSPEED")).upper()
    if kind != "DEEPSPEED":
        message = f"distributed_type: {kind} does not use DeepSpeed"
        fix = "name a config with distributed_type: DEEPSPEED, or FSDP"
        raise BadInput(document.problem(("distributed_type",), "ZP010", message, fix))
    plugin = plugin_of(document, outer)
    ranks = _ranks(opened, question, outer, ("num_processes",))
    reading = Reading(
        opened.form, "accelerate", document.name, ranks, (), {}, plugin=plugin, nodes=opened.nodes
    )
    if plugin.deepspeed_config_file is None:
        notes = Notes(document, within=("deepspeed_config",))
        config = made_config(plugin, outer)
        return _with(_under_accelerate(reading, notes, config, plugin, question), outer.remarks)
    refuse_beside_file(plugin, outer)
    path = _beside(opened.path, plugin.deepspeed_config_file)
    inner, remarks = deepspeed_document(path, plugin.deepspeed_config_file, trainer=True)
    under = _under_accelerate(reading, Notes(inner), _mapping(inner), plugin, question)
    return _with(under, (*outer.remarks, *remarks))


def _arguments(opened: Opened, question: Question) -> Reading:
    """Arguments of the Hugging Face Trainer, which name a DeepSpeed config or hold one."""
    document, data = opened.document, opened.document.data
    outer = Notes(document)
    if opened.form == "command" and not isinstance(data.get("deepspeed"), str):
        return _launched(opened, question)
    arguments = trainer_arguments(document, outer)
    tell_words(arguments, outer)
    ranks = _ranks(opened, question, outer, ())
    reading = Reading(
        opened.form, "huggingface", document.name, ranks, (), {}, arguments=arguments, outer=document
    )
    remarks: list[Remark] = []
    inside: Mapping[str, Any]
    if isinstance(arguments.deepspeed, dict):
        notes, inside = Notes(document, within=("deepspeed",)), arguments.deepspeed
    else:
        inner, remarks = _named(opened, arguments.deepspeed, "deepspeed", trainer=True)
        notes, inside = Notes(inner), _mapping(inner)
    if "gradient_accumulation_steps" not in inside and arguments.gradient_accumulation_steps != 1:
        message = "gradient_accumulation_steps: the DeepSpeed config has none, which accelerate makes 1"
        fix = 'add "gradient_accumulation_steps": "auto" to the DeepSpeed config'
        outer.add("ignored", ("gradient_accumulation_steps",), message, fix)
    under = _under_trainer(reading, notes, inside, arguments, question)
    return _with(under, (*outer.remarks, *remarks))


def _launched(opened: Opened, question: Question) -> Reading:
    """A command line that names a DeepSpeed config for the script, or a config of accelerate's."""
    data = opened.document.data
    if isinstance(data.get("config_file"), str):
        inner = open_config(_beside(opened.path, data["config_file"]), data["config_file"])
        if inner.form == "accelerate":
            script = replace(question, micro_batch_size=question.micro_batch_size or _batch_of(opened))
            ranks, nodes = opened.ranks or inner.ranks, opened.nodes or inner.nodes
            return read_config(inner._replace(ranks=ranks, nodes=nodes), script)
    document, remarks = _named(opened, data.get("deepspeed_config"), "deepspeed_config", trainer=False)
    outer = Notes(opened.document)
    ranks = _ranks(opened, question, outer, ())
    reading = Reading(opened.form, "none", opened.document.name, ranks, (), {})
    return _with(_finished(reading, Notes(document), _mapping(document)), (*outer.remarks, *remarks))


def _batch_of(opened: Opened) -> int | None:
    arguments = trainer_arguments(opened.document, Notes(opened.document))
    stated = "per_device_train_batch_size" in opened.document.data
    return arguments.per_device_train_batch_size if stated else None


def _named(opened: Opened, value: Any, flag: str, trainer: bool) -> tuple[Document, list[Remark]]:
    """The DeepSpeed config that a file names."""
    if not isinstance(value, str):
        message = "names no DeepSpeed config"
        fix = f"add `{flag}`, with the path of the config"
        raise BadInput(opened.document.problem((flag,), "ZP013", message, fix))
    return deepspeed_document(_beside(opened.path, value), value, trainer)


def _beside(path: Path, name: str) -> Path:
    """A file that another one names: from that one's folder, else from here."""
    there = path.parent / name
    return there if there.exists() else Path(name)


def _mapping(document: Document) -> Mapping[str, Any]:
    if not isinstance(document.data, dict):
        raise BadInput(document.problem((), "ZP010", "expected a mapping of keys to values"))
    return document.data


def _ranks(opened: Opened, question: Question, notes: Notes, path: tuple[str, ...]) -> int:
    """How many ranks are started: what the launcher says, else a rank on every GPU."""
    if opened.ranks is None or opened.ranks == question.ranks:
        return question.ranks
    message = f"{opened.ranks} ranks are started; the machine has {question.ranks} GPUs"
    notes.add("derived", path, message)
    return opened.ranks


def _under_trainer(
    reading: Reading, notes: Notes, data: Mapping[str, Any], arguments: TrainerArguments, question: Question
) -> Reading:
    """What the Hugging Face Trainer, and accelerate inside it, make of a config."""
    filler = Filler(data, notes, TRAINER)
    fill_from_arguments(filler, arguments, reading.ranks)
    fill_in_plugin(filler, Plugin())
    if arguments.knows("bf16", "fp16"):
        fill_precision(filler, "bf16" if arguments.bf16 else "fp16" if arguments.fp16 else "no")
    fill_from_model(filler, arguments, question.hidden_size)
    prepare(filler, reading.ranks, None, arguments.gradient_accumulation_steps, question.hidden_size)
    return _finished(reading, notes, filler.settled(), filler)


def _under_accelerate(
    reading: Reading, notes: Notes, data: Mapping[str, Any], plugin: Plugin, question: Question
) -> Reading:
    """What accelerate makes of a config for a script with a loop of its own."""
    filler = Filler(data, notes, "accelerate")
    fill_in_plugin(filler, plugin)
    fill_precision(filler, plugin.mixed_precision or question.precision or "no")
    for key in SCRIPT_DECIDES:
        filler.unknown(key, "script", decides=False)
    steps = plugin.gradient_accumulation_steps or question.accumulation_steps or 1
    prepare(filler, reading.ranks, question.micro_batch_size, steps, question.hidden_size)
    return _finished(reading, notes, filler.settled(), filler)


def _finished(
    reading: Reading, notes: Notes, data: Mapping[str, Any], filler: Filler | None = None
) -> Reading:
    """What DeepSpeed makes of the mapping that it gets."""
    missing = any(remark.kind == "unknown" for remark in notes.remarks)
    ranks = float(reading.ranks)
    sequences = data.get("sequence_parallel_size")
    if filler is not None and isinstance(sequences, int) and sequences > 0:
        ranks /= sequences  # config.py looks for it in a mapping, as trainers hand over, and not in a file
    read = read_mapping(data, ranks, notes, batch_known=not missing)
    tell_effects(data, read, notes, trainer=filler is not None)
    settings = None
    if not missing and not any(remark.kind == "rejected" for remark in notes.remarks):
        settings = settings_of(read.values)
        tell_unplanned(data, read, settings, notes)
    return replace(
        _with(reading, notes.remarks),
        config=dict(data),
        batch=read.batch,
        settings=settings,
        document=notes.document,
        within=notes.within,
    )


def _with(reading: Reading, remarks: Iterable[Remark]) -> Reading:
    """The reading with more remarks, in the order of files and lines."""
    every = sorted({*reading.remarks, *remarks}, key=lambda r: (r.file, r.line, r.column, r.path, r.kind))
    rejected = any(remark.kind == "rejected" for remark in every)
    return replace(reading, remarks=tuple(every), settings=None if rejected else reading.settings)
