"""From YAML 1.2 or JSON text to data and spots, without recursion, everything wrong collected.

YAML means its core schema (`1e9` is a number; `yes` and dates are text). Anchors, tags and
merge keys are refused, because a place in the file would no longer be the place of the value.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import yaml

from ziplan.errors import BadInput, Problem
from ziplan.files.document import LINE_BREAK, Document, Spot

UNREADABLE, SYNTAX, DUPLICATE, UNSUPPORTED, WRONG_VALUE = "ZP001", "ZP002", "ZP003", "ZP004", "ZP010"
DEEPEST = 64
MOST_VALUES = 200_000
MOST_PROBLEMS = 100
_WHOLE_LINE = 1 << 30
_SURROGATE = re.compile("[\ud800-\udfff]")

# Alternatives, as one class of characters this wide takes ten times as long to compile.
_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]|[\ud800-\udfff]|[\ufffe\uffff]")


def read_text(text: str, name: str) -> Document:
    """The data of YAML or JSON text; `name` stands for it in problems."""
    document = Document(name, text)
    composer = Composer(document, text)
    refuse_control_characters(composer, text)
    is_json = name.endswith(".json")
    try:
        if is_json or text.lstrip()[:1] in ("{", "["):
            try:
                _compose_json(composer, text)
            except Unfinished:
                if is_json or composer.too_much:
                    raise
                composer = Composer(document, text)
                _compose_yaml(composer, text)
        else:
            _compose_yaml(composer, text)
    except Unfinished:
        pass
    return finished(document, composer)


def read_json(text: str, name: str) -> Document:
    """The data of JSON text, a repeated key's last value, and every repetition (as `json.load` takes it)."""
    return read_with(_compose_json, text, name)


def read_with(compose: Callable[[Composer, str], None], text: str, name: str) -> Document:
    """The data of text in the grammar that `compose` feeds; repeated keys are noted, not refused."""
    document = Document(name, text)
    composer = Composer(document, text)
    composer.keeps_last = True
    refuse_control_characters(composer, text)
    with contextlib.suppress(Unfinished):
        compose(composer, text)
    return finished(document, composer)


def refuse_control_characters(composer: Composer, text: str) -> None:
    """BadInput where the text has a character that no text file has."""
    if stray := _NOT_TEXT.search(text):
        composer.complain(composer.spot(stray.start()), UNREADABLE, f"has the character {stray.group()!a}")
        raise BadInput(*composer.problems)


def finished(document: Document, composer: Composer) -> Document:
    """The document that has been composed; BadInput with every problem in it."""
    if not composer.problems and not composer.started:
        raise BadInput.of("is empty", file=document.name)
    if composer.problems:
        raise BadInput(*composer.problems)
    document.data, document.root = composer.data, composer.root
    return document


class Unfinished(Exception):
    """The rest of the text cannot be made sense of; the problem is already noted."""


_DROPPED = object()
"""Stands for a key that cannot be one, so that its value is read and forgotten."""


@dataclass
class _Frame:
    """A mapping or list being filled; `key` waits for its value."""

    container: Any
    spot: Spot
    key: Any = None
    key_spot: Spot | None = None


class Composer:
    """Builds data and spots from scalars, openings and closings, and collects what is wrong."""

    def __init__(self, document: Document, text: str) -> None:
        self.data: Any = None
        self.root = Spot(1, 1)
        self.problems: list[Problem] = []
        self.started = False
        self.too_much = False
        self.keeps_last = False
        """Whether a repeated key is noted in the document and its last value kept, instead of refused."""
        self.stack: list[_Frame] = []
        self._document = document
        self._text = text
        self._starts: list[int] | None = None
        self._count = 0

    def complain(self, spot: Spot, code: str, message: str, help: str = "") -> None:
        """Note a problem and go on, unless there are so many that nobody reads on."""
        if len(self.problems) >= MOST_PROBLEMS:
            raise Unfinished
        self.problems.append(self._document.problem_at(self._document.place(spot), code, message, help))

    def fail(self, spot: Spot, code: str, message: str, help: str = "") -> Unfinished:
        """Note a problem after which reading ends; to be raised."""
        self.complain(spot, code, message, help)
        return Unfinished()

    def spot(self, offset: int, length: int = 1) -> Spot:
        """The spot of a stretch of the text."""
        if self._starts is None:
            self._starts = [0, *(match.end() for match in LINE_BREAK.finditer(self._text))]
        line = bisect.bisect_right(self._starts, offset)
        return Spot(line, offset - self._starts[line - 1] + 1, length)

    def open(self, container: Any, spot: Spot) -> None:
        """A mapping or a list begins."""
        if len(self.stack) >= DEEPEST:
            self.too_much = True
            raise self.fail(spot, UNSUPPORTED, f"is nested deeper than {DEEPEST} levels")
        spot.parts = container.copy()
        spot.keys = {} if isinstance(container, dict) else None
        if self._wants_key():
            self.complain(spot, UNSUPPORTED, "a key must be plain text, not a mapping or a list")
            self.stack[-1].key = _DROPPED
        else:
            self._put(container, spot)
        self.stack.append(_Frame(container, spot))

    def close(self) -> None:
        """The mapping or list opened last ends."""
        self.stack.pop()

    def scalar(self, text: str, spot: Spot, plain: bool) -> None:
        """A scalar: a key where one is due, else a value, resolved when it is plain."""
        self._counted(spot)
        if _SURROGATE.search(text):
            self.complain(spot, UNREADABLE, "has an escape that is no character")
            text = ""
        if self._wants_key():
            self._key(text, spot, plain)
        else:
            self._put(self._resolved(text, spot) if plain else text, spot)

    def value(self, value: Any, spot: Spot) -> None:
        """A value that is resolved already."""
        self._counted(spot)
        self._put(value, spot)

    def _counted(self, spot: Spot) -> None:
        self._count += 1
        if self._count > MOST_VALUES:
            self.too_much = True
            raise self.fail(spot, UNSUPPORTED, f"has more than {MOST_VALUES:,} values")

    def _wants_key(self) -> bool:
        return bool(self.stack) and self.stack[-1].key is None and isinstance(self.stack[-1].container, dict)

    def _key(self, text: str, spot: Spot, plain: bool) -> None:
        frame = self.stack[-1]
        frame.key, frame.key_spot = text, spot
        if plain and text == "<<":
            self.complain(spot, UNSUPPORTED, "merge keys (<<) are not supported", "write the keys out")
            frame.key = _DROPPED
        elif text in frame.container:
            assert frame.spot.keys is not None
            first = frame.spot.keys[text]
            if self.keeps_last:
                self._document.repeated.append(
                    (text, self._document.place(first), self._document.place(spot))
                )
                return
            self.complain(spot, DUPLICATE, f"key `{text}` is already given in line {first.line}")
            frame.key = _DROPPED

    def _put(self, value: Any, spot: Spot) -> None:
        if not self.stack:
            self.data, self.root, self.started = value, spot, True
            return
        frame = self.stack[-1]
        if isinstance(frame.container, list):
            frame.container.append(value)
            frame.spot.parts.append(spot)
            return
        key, frame.key = frame.key, None
        if key is not _DROPPED:
            assert frame.spot.keys is not None
            assert frame.key_spot is not None
            frame.container[key] = value
            frame.spot.parts[key] = spot
            frame.spot.keys[key] = frame.key_spot

    def _resolved(self, text: str, spot: Spot) -> Any:
        """What a plain scalar means in YAML 1.2's core schema."""
        if text in _WORDS:
            return _WORDS[text]
        match = _NUMBER.fullmatch(text)
        if match is None:
            return text
        if len(text) <= _LONGEST_NUMBER and match.lastgroup == "int":
            return int(text)
        if len(text) <= _LONGEST_NUMBER and match.lastgroup == "based":
            return int(text, 0)
        number = float(text) if match.lastgroup == "float" else math.inf
        if not math.isfinite(number):
            self.complain(spot, WRONG_VALUE, f"{text[:40]} is not a number that can be computed with")
        return number


_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER = re.compile(
    r"(?P<int>[-+]?[0-9]+)|(?P<based>0o[0-7]+|0x[0-9a-fA-F]+)"
    r"|(?P<float>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<odd>[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))"
)
_LONGEST_NUMBER = 200


def _compose_yaml(composer: Composer, text: str) -> None:
    """Feed YAML text to the composer, event by event."""
    documents = 0
    for event in _yaml_events(composer, text):
        if isinstance(event, yaml.NodeEvent):
            _yaml_node(composer, event)
        elif isinstance(event, yaml.CollectionEndEvent):
            composer.close()
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise composer.fail(_yaml_spot(event), UNSUPPORTED, "more than one document in a file")


def _yaml_node(composer: Composer, event: Any) -> None:
    """Take a scalar, the start of a mapping or list, or an alias."""
    spot = _yaml_spot(event)
    if isinstance(event, yaml.AliasEvent):
        message = f"aliases (*{event.anchor}) are not supported"
        composer.complain(spot, UNSUPPORTED, message, "write the value out")
        composer.scalar("", spot, False)
        return
    if event.anchor is not None:
        message = f"anchors (&{event.anchor}) are not supported"
        composer.complain(spot, UNSUPPORTED, message, "write the value out")
    if event.tag is not None:
        composer.complain(spot, UNSUPPORTED, f"tags ({event.tag}) are not supported", "leave it out")
    if isinstance(event, yaml.ScalarEvent):
        plain = event.style in (None, "") and event.implicit[0]
        composer.scalar(event.value, spot, plain)
    else:
        composer.open({} if isinstance(event, yaml.MappingStartEvent) else [], spot)


def _yaml_events(composer: Composer, text: str) -> Iterator[Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        spot = Spot(mark.line + 1, mark.column + 1) if mark else Spot(1, 1)
        what = f"not valid YAML: {' '.join(filter(None, (error.problem, error.context)))}"
        remedy = "indent with spaces, never with tabs" if "'\\t'" in what or "'\t'" in what else ""
        raise composer.fail(spot, SYNTAX, what, remedy) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise composer.fail(Spot(1, 1), SYNTAX, f"not valid YAML: {error}") from None


def _yaml_spot(event: Any) -> Spot:
    start, end = event.start_mark, event.end_mark
    length = end.column - start.column if end.line == start.line else _WHOLE_LINE
    return Spot(start.line + 1, start.column + 1, length)


_TOKEN = re.compile(
    r"(?P<mark>[{}\[\],:])"
    r'|(?P<string>"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*")'
    r"|(?P<word>(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)(?![\w.+-]))"
)
_SPACE = re.compile(r"[ \t\r\n]*")


def _compose_json(composer: Composer, text: str) -> None:
    """Feed JSON text to the composer, token by token. `due` is what the grammar asks for next."""
    due, offset = "a value", cast(Any, _SPACE.match(text)).end()
    while offset < len(text):
        token = _TOKEN.match(text, offset)
        spot = composer.spot(offset, len(token.group()) if token else 1)
        if token is None:
            raise composer.fail(spot, SYNTAX, f"not valid JSON: expected {due}")
        due = _json_token(composer, token, spot, due)
        offset = cast(Any, _SPACE.match(text, token.end())).end()
    if composer.stack or (due != "the end" and composer.started):
        raise composer.fail(
            composer.spot(max(0, len(text) - 1)), SYNTAX, f"not valid JSON: ends before {due}"
        )


def _json_token(composer: Composer, token: re.Match[str], spot: Spot, due: str) -> str:
    """Take one token; the answer is what must follow it."""
    text, kind = token.group(), token.lastgroup
    if due in ("a value", "a value or ']'") and text in ("{", "["):
        composer.open({} if text == "{" else [], spot)
        return "a key in double quotes or '}'" if text == "{" else "a value or ']'"
    if due.startswith("a value") and kind in ("string", "word"):
        composer.scalar(_json_string(text) if kind == "string" else text, spot, kind == "word")
        return _after_value(composer)
    if due.startswith("a key") and kind == "string":
        composer.scalar(_json_string(text), spot, False)
        return "':'"
    if due == "':'" and text == ":":
        return "a value"
    if text in ("}", "]") and due.endswith(f"'{text}'"):
        composer.close()
        return _after_value(composer)
    if due.startswith("','") and text == ",":
        return "a key in double quotes" if isinstance(composer.stack[-1].container, dict) else "a value"
    raise composer.fail(spot, SYNTAX, f"not valid JSON: expected {due}")


def _after_value(composer: Composer) -> str:
    if not composer.stack:
        return "the end"
    return "',' or '}'" if isinstance(composer.stack[-1].container, dict) else "',' or ']'"


def _json_string(token: str) -> str:
    return cast(str, json.loads(token)) if "\\" in token else token[1:-1]
