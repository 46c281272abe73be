"""What a person names as MODEL: a shipped shape, a config.json or its folder, or a model.yaml.

A shipped name wins over a folder of that name (`./gpt2` is the folder).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ziplan.errors import BadInput, Problem
from ziplan.files import Document, dotted, read, suggested, validate
from ziplan.files.document import Path as Keys
from ziplan.files.validation import MISSING_KEY, WRONG_VALUE
from ziplan.workload.config import model_of
from ziplan.workload.model import Model
from ziplan.workload.shapes import list_shapes, shape_config
from ziplan.workload.training import TrainingChoices

if TYPE_CHECKING:
    from ziplan.workload.model_file import CompanionEntry, ModelFile

_MODEL_FILE_KEYS = {"model", "shape", "training", "companions"}


class Source:
    """What MODEL turned out to be: `model()` reads it; `document` is its model.yaml, if it is one."""

    def __init__(self, model: Callable[[], Model], document: Document | None = None) -> None:
        self.model, self.document = model, document

    def training(self) -> TrainingChoices:
        """The training settings that the model.yaml states; none without one."""
        return TrainingChoices() if self.document is None else _model_file(self.document).training

    def companions(self) -> list[tuple[CompanionEntry, Keys]]:
        """The other models of the job that the model.yaml states, each with its place there."""
        if self.document is None or "companions" not in self.document.data:
            return []
        entries = _model_file(self.document).companions
        return [(entry, ("companions", index)) for index, entry in enumerate(entries)]


def _model_file(document: Document) -> ModelFile:
    from ziplan.workload.model_file import ModelFile  # only where there is one

    return validate(document, ModelFile)


def open_source(argument: str) -> Source:
    """What `argument` is, read as far as needed to tell."""
    config = shape_config(argument)
    if config is not None:
        shipped = config
        return Source(lambda: _built(argument, shipped, _Shipped(argument)))
    # An empty name is a path to this folder for Python, and a slip of whoever wrote it.
    folder = _config_document(Path(argument)) if argument.strip() else None
    document = folder or read(_existing(argument))
    if not isinstance(document.data, dict):
        raise BadInput(document.problem((), WRONG_VALUE, "expected a mapping of keys to values"))
    if _kind(document) == "config":
        return Source(lambda: _from_config(document))
    return Source(lambda: _from_model_file(document), document)


def _kind(document: Document) -> Literal["config", "model file"]:
    """A model.yaml, or a config; JSON is a config unless it has a model.yaml's keys."""
    is_config = "model_type" in document.data
    is_json = document.name.endswith(".json") and not _MODEL_FILE_KEYS & document.data.keys()
    return "config" if is_config or is_json else "model file"


def _config_document(folder: Path) -> Document | None:
    """The config.json of a folder; None where `folder` is none."""
    if not _is(Path.is_dir, folder):
        return None
    if not (folder / "config.json").exists():
        raise BadInput.of("this folder has no config.json", file=str(folder))
    return read(folder / "config.json")


def _existing(argument: str) -> Path:
    """The path `argument`, which must exist unless it was meant as a name."""
    path = Path(argument)
    if argument.strip() and _is(Path.exists, path):
        return path
    if path.suffix in (".json", ".yaml", ".yml") or "/" in argument or "\\" in argument:
        raise BadInput.of("no such file", file=argument)
    raise BadInput(_unknown_name(argument))


def _is(test: Callable[[Path], bool], path: Path) -> bool:
    """`test(path)`; no where the text cannot be a path."""
    try:
        return test(path)
    except (OSError, ValueError):
        return False


def _unknown_name(name: str) -> Problem:
    message = f"{name!r:.80} is neither a shipped model shape nor a file"
    remedy = "`ziplan models` lists the shipped shapes; a Hugging Face config.json or its folder works too"
    return Problem("", 0, 0, WRONG_VALUE, message, help=remedy, hint=suggested(name, list_shapes()))


def _from_config(document: Document) -> Model:
    path = Path(document.name)
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return _built(name, document.data, document)


def _from_model_file(document: Document) -> Model:
    named, shape = document.data.get("model"), document.data.get("shape")
    if (named is None) == (shape is None):
        said = "either `model` or `shape`, not both" if shape else "`model` (or an inline `shape`)"
        raise BadInput(document.problem(("model",), MISSING_KEY, f"name one model: {said}", key=True))
    if isinstance(shape, dict):
        return _built(str(shape.get("name") or Path(document.name).stem), shape, document, ("shape",))
    if not isinstance(named, str):
        _model_file(document)
    return referred(document, str(named), ("model",))


def referred(document: Document, named: str, place: Keys) -> Model:
    """The model that a model.yaml names at `place`: a shipped shape, or a config relative to the file."""
    config = shape_config(named)
    if config is not None:
        return _built(named, config, _Shipped(named))
    path = Path(document.name).parent / named
    target = _config_document(path) if named.strip() else None
    if not named.strip() or (target is None and not _is(Path.exists, path)):
        problem = _unknown_name(named)
        message = f"{dotted(place)}: {problem.message}"
        raise BadInput(document.problem(place, WRONG_VALUE, message, problem.help, problem.hint))
    target = target or read(path)
    if not isinstance(target.data, dict):
        raise BadInput(target.problem((), WRONG_VALUE, "expected a mapping of keys to values"))
    return _from_config(target)


class _Shipped:
    """A shipped shape as a place of problems; only a broken installation has any."""

    def __init__(self, name: str) -> None:
        self.name = name

    def problem(
        self, path: Keys, code: str, message: str, help: str = "", hint: str = "", key: bool = False
    ) -> Problem:
        """A problem with the shape."""
        return Problem(f"shipped shape {self.name}", 0, 0, code, message, help=help, hint=hint)


def _built(name: str, config: Mapping[str, Any], place: Document | _Shipped, path: Keys = ()) -> Model:
    """The model of a config that stands at `path` of `place`; every problem with it raised at once."""
    problems: list[Problem] = []

    def report(key: str, code: str, message: str, help: str) -> None:
        at = (*path, key)
        missing = code == MISSING_KEY
        where = dotted(path if missing else at)
        said = f"{where}: {message}" if where else message
        problems.append(place.problem(at, code, said, help, key=missing and bool(path)))

    model = model_of(name, config, report)
    if problems or model is None:
        raise BadInput(*problems)
    return model if model.source or isinstance(place, _Shipped) else replace(model, source=place.name)
