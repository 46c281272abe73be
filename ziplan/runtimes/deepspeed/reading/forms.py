"""Which kind of file a config is, and its data with the place of every key.

A DeepSpeed config, an accelerate config, arguments of the Hugging Face Trainer as a file or on a command
line, or a plan.yaml.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ziplan.errors import BadInput
from ziplan.files import Document, read, read_text
from ziplan.files.compose import read_json
from ziplan.files.document import LINE_BREAK, Spot
from ziplan.files.hjson import read_hjson
from ziplan.runtimes.deepspeed.reading.huggingface import ARGUMENTS
from ziplan.runtimes.deepspeed.reading.remarks import Notes, Remark, RemarkKind
from ziplan.runtimes.deepspeed.reading.walk import SECTIONS

Form = Literal["deepspeed", "accelerate", "arguments", "command", "plan"]

YAML_ENDINGS = (".yaml", ".yml")
_WORD = r"\"[^\"]*\"|'[^']*'|[^\s\\]+"
_FLAG = re.compile(rf"(?<![\w-])--(?P<key>[A-Za-z_][\w-]*)(?:(?:=|[ \t]+(?!--))(?P<value>{_WORD}))?")
_SIGNS: Mapping[Form, tuple[str, ...]] = {
    "accelerate": ("distributed_type", "compute_environment", "deepspeed_config"),
    "arguments": tuple(name for name in ARGUMENTS if name not in SECTIONS[""].names),
    "deepspeed": tuple(SECTIONS[""].names),
}
"""Keys by which a form is told, in this order; those that the next form has too are none."""

EXPECTED = (
    "a DeepSpeed config (JSON), an accelerate config (YAML), arguments of the Hugging Face Trainer "
    "(JSON, YAML or a command line), or a plan.yaml"
)


class Opened(NamedTuple):
    """A file, what it is, and what a launcher in it says of ranks and nodes (None where it says nothing)."""

    form: Form
    document: Document
    path: Path
    ranks: int | None = None
    nodes: int | None = None


def open_config(path: str | os.PathLike[str], name: str = "") -> Opened:
    """What the file at `path` is; BadInput where it is none of the forms."""
    name = name or os.fspath(path)
    document = read(path, name, _parsed)
    if isinstance(document, _Command):
        return Opened("command", document, Path(path), document.ranks, document.nodes)
    form = form_of(document.data)
    if form is None:
        message = "no kind of config that ziplan knows"
        raise BadInput(document.problem((), "ZP010", message, f"expected {EXPECTED}"))
    if form == "accelerate":
        processes, machines = (_count(document, *named) for named in _OF_ACCELERATE)
        return Opened(form, document, Path(path), processes, machines)
    return Opened(form, document, Path(path))


_OF_ACCELERATE = (
    ("num_processes", "the ranks of all nodes"),
    ("num_machines", "the nodes that ranks run on"),
)
"""Keys of accelerate's config that say how many ranks are started, and on how many nodes."""


def _count(document: Document, key: str, meaning: str) -> int | None:
    """A count that accelerate's config states; None where it does not."""
    stated = document.data.get(key)
    count = _positive(stated)
    if stated is not None and count is None:
        message = f"{key}: expected a whole number of at least 1, not {stated!r:.40}"
        raise BadInput(document.problem((key,), "ZP010", message, meaning))
    return count


def form_of(data: Any) -> Form | None:
    """The form of a file's data."""
    if not isinstance(data, dict):
        return None
    if str(data.get("schema", "")).startswith("ziplan.plan/"):
        return "plan"
    return next((form for form, signs in _SIGNS.items() if any(sign in data for sign in signs)), None)


def _parsed(text: str, name: str) -> Document:
    """A command line where flags of one are; else YAML or Hjson, by the name's ending."""
    if name.endswith(YAML_ENDINGS):
        return read_text(text, name)
    flags = {match["key"] for match in _flags(text)}
    is_data = text.lstrip()[:1] in ("{", "[") or name.endswith((".json", ".hjson"))
    if not is_data and flags & {*ARGUMENTS, "config_file", "deepspeed_config"}:
        return _Command(name, text)
    try:
        return read_hjson(text, name)
    except BadInput:
        if is_data:
            raise
        return read_text(text, name)


def deepspeed_document(path: Path, name: str, trainer: bool) -> tuple[Document, list[Remark]]:
    """A DeepSpeed config as its reader sees it: trainers call `json.load`, DeepSpeed alone reads Hjson."""
    if name.endswith(YAML_ENDINGS):
        document = read(path, name)
        notes = Notes(document)
        notes.add("rejected", (), "DeepSpeed reads JSON, not YAML", "write it as JSON")
        return document, notes.remarks
    remarks = []
    try:
        document = read(path, name, read_json if trainer else read_hjson)
    except BadInput as error:
        if not trainer:
            raise
        document = read(path, name, read_hjson)
        for wrong in error.problems:
            message = f"trainers read strict JSON: {wrong.message}"
            remarks.append(
                Remark("rejected", name, "", wrong.line, wrong.column, message, "write it as JSON")
            )
    for key, first, again in document.repeated:
        kind: RemarkKind = "ignored" if trainer else "rejected"
        place = first if trainer else again
        message = f"{key}: given in line {first.line} and in line {again.line}"
        message += "; the trainer takes the last" if trainer else "; DeepSpeed refuses that"
        remarks.append(Remark(kind, name, key, place.line, place.column, message, "keep one"))
    return document, remarks


_COUNTS = (("nproc_per_node", "nnodes"), ("num_gpus", "num_nodes"), ("num_processes", ""))
"""Flags of torchrun, deepspeed and accelerate that say how many ranks are started, and on how many nodes."""

_NODES = ("nnodes", "num_nodes", "num_machines")
"""Their flags that say how many nodes there are."""

_NODES_ELSEWHERE = ("hostfile", "include", "exclude")
"""Flags of deepspeed that leave the number of nodes to a file, or name nodes and GPUs themselves."""


class _Command(Document):
    """The flags of a command line, as a mapping."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name, text)
        starts = [0, *(match.end() for match in LINE_BREAK.finditer(text))]
        self.data = {}
        parts: dict[str, Spot] = {}
        for match in _flags(text):
            line = sum(start <= match.start() for start in starts)
            key = match["key"].replace("-", "_")
            self.data[key] = _value(match["value"])
            parts[key] = Spot(line, match.start() - starts[line - 1] + 1, len(match.group()))
        self.root = Spot(1, 1, parts=parts, keys=parts)

    @property
    def ranks(self) -> int | None:
        """How many ranks the launcher starts."""
        return _ranks(self.data)

    @property
    def nodes(self) -> int | None:
        """On how many nodes the launcher starts them; None where it does not say."""
        counts = (_positive(self.data.get(flag)) for flag in _NODES)
        return next((count for count in counts if count is not None), None)


def started_ranks(script: str) -> int | None:
    """How many ranks a launch script starts; None where it leaves that out, to a variable or to a file."""
    return _ranks(_Command("", script).data)


def started_nodes(script: str) -> int | None:
    """On how many nodes a launch script starts them; None where it leaves that out, or to a variable."""
    return _Command("", script).nodes


def _ranks(flags: Mapping[str, Any]) -> int | None:
    for each, nodes in _COUNTS:
        count = _positive(flags.get(each))
        if count is None:
            continue
        if nodes and nodes not in flags and any(chosen in flags for chosen in _NODES_ELSEWHERE):
            return None
        many = _positive(flags.get(nodes, 1))
        return None if many is None else count * many
    return None


def _flags(text: str) -> Iterator[re.Match[str]]:
    """Flags, those in comment lines left out; a flag's value is not another flag."""
    for match in _FLAG.finditer(text):
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if not line.lstrip().startswith("#"):
            yield match


def _value(word: str | None) -> Any:
    """A flag's value; one without is true."""
    if word is None:
        return True
    word = word[1:-1] if word[:1] in ("'", '"') else word
    number = re.fullmatch(r"[+-]?[0-9]+", word)
    with contextlib.suppress(ValueError):
        return int(word) if number else float(word)
    return {"true": True, "false": False}.get(word.lower(), word)


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
