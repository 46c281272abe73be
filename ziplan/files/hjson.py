"""Hjson, the lenient JSON that DeepSpeed's config files may be written in, with the place of everything.

Comments, keys without quotes, text without quotes up to the end of its line, trailing and missing
commas, text in three quotes over several lines, and a file without outer braces (https://hjson.github.io,
as the Python package hjson 3.1 reads it). A repeated key is noted in the document, and its last value kept.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ziplan.files.compose import SYNTAX, Composer, read_with
from ziplan.files.document import Document, Spot

_SPACE = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*|//[^\r\n]*|/\*(?:(?!\*/)[\s\S])*\*/)*")
_BARE_KEY = re.compile(r"[^ \t\r\n{}\[\],:]+(?=[ \t\r\n]*:)")
_QUOTED = re.compile(
    r'"(?:[^"\\\x00-\x1f]|\\(?:["\'\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
    r"|'(?:[^'\\\x00-\x1f]|\\(?:[\"'\\/bfnrt]|u[0-9a-fA-F]{4}))*'"
)
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?[\t ]*")
_MARK = re.compile(r"[,}\]#\r\n]|//|/\*|\Z")
_WORDS = {"true": True, "false": False, "null": None}
_LONGEST_NUMBER = 200
LARGEST_WHOLE = 1e10
"""hjson makes a whole number of a float below this, as 5e8."""


def read_hjson(text: str, name: str) -> Document:
    """The data of Hjson text; BadInput where it is none."""
    return read_with(_compose, text, name)


def _compose(composer: Composer, text: str) -> None:
    """Feed Hjson to the composer; ends when the outermost mapping or list does."""
    offset = _skip(composer, text, 0)
    bare = text[offset : offset + 1] not in ("{", "[")
    if bare:
        composer.open({}, composer.spot(offset))
    else:
        offset = _value(composer, text, offset)
    while composer.stack:
        offset = _skip(composer, text, offset)
        outermost = bare and len(composer.stack) == 1
        if outermost and offset == len(text):
            composer.close()
        else:
            offset = _item(composer, text, offset, closes=not outermost)
    offset = _skip(composer, text, offset)
    if offset < len(text):
        raise composer.fail(composer.spot(offset), SYNTAX, "not valid Hjson: more text after the end")


def _item(composer: Composer, text: str, offset: int, closes: bool) -> int:
    """Take what comes next in the open mapping or list: its end, if it `closes`, or one more value."""
    in_mapping = isinstance(composer.stack[-1].container, dict)
    if closes and text[offset : offset + 1] == ("}" if in_mapping else "]"):
        composer.close()
        return _after(composer, text, offset + 1)
    if in_mapping:
        offset = _skip(composer, text, _key(composer, text, offset))
        if text[offset : offset + 1] != ":":
            raise composer.fail(composer.spot(offset), SYNTAX, "not valid Hjson: expected ':'")
        offset = _skip(composer, text, offset + 1)
    return _value(composer, text, offset)


def _after(composer: Composer, text: str, offset: int) -> int:
    """Past the comma that may follow a value."""
    offset = _skip(composer, text, offset)
    return offset + 1 if composer.stack and text[offset : offset + 1] == "," else offset


def _skip(composer: Composer, text: str, offset: int) -> int:
    match = _SPACE.match(text, offset)
    end = match.end() if match else offset
    if text.startswith("/*", end):
        raise composer.fail(composer.spot(end), SYNTAX, "not valid Hjson: a comment that never ends")
    return end


def _key(composer: Composer, text: str, offset: int) -> int:
    quoted = text[offset : offset + 1] in ('"', "'")
    match = (_QUOTED if quoted else _BARE_KEY).match(text, offset)
    if match is None:
        message = "not valid Hjson: expected a key, as in `stage: 3`, or the end of the mapping"
        raise composer.fail(composer.spot(offset), SYNTAX, message)
    key = _unquoted(match.group()) if quoted else match.group()
    composer.scalar(key, composer.spot(offset, len(match.group())), False)
    return match.end()


def _value(composer: Composer, text: str, offset: int) -> int:
    """Take a value, or open the mapping or list that starts here."""
    first = text[offset : offset + 1]
    if first and first in "{[":
        composer.open({} if first == "{" else [], composer.spot(offset))
        return offset + 1
    if text.startswith("'''", offset):
        value, end = _lines(composer, text, offset)
    elif first and first in "\"'":
        match = _QUOTED.match(text, offset)
        if match is None:
            raise composer.fail(composer.spot(offset), SYNTAX, "not valid Hjson: text without its end quote")
        value, end = _unquoted(match.group()), match.end()
    elif not first or first in "}],:":
        raise composer.fail(composer.spot(offset), SYNTAX, "not valid Hjson: expected a value")
    else:
        value, end = _unmarked(composer, text, offset)
    _put(composer, value, composer.spot(offset, end - offset))
    return _after(composer, text, end)


def _put(composer: Composer, value: Any, spot: Spot) -> None:
    if isinstance(value, str):
        composer.scalar(value, spot, False)
    else:
        composer.value(value, spot)


def _unquoted(token: str) -> str:
    """What text in single or double quotes says."""
    inside = re.sub(r"\\(.)|\"", lambda m: {"\\'": "'", '"': '\\"'}.get(m[0], m[0]), token[1:-1])
    return str(json.loads(f'"{inside}"'))


def _unmarked(composer: Composer, text: str, begin: int) -> tuple[Any, int]:
    """A number or word up to a mark that may follow it, else text up to the end of the line."""
    for mark in _MARK.finditer(text, begin):
        word = text[begin : mark.start()].strip()
        if word in _WORDS:
            return _WORDS[word], mark.start()
        number = _NUMBER.fullmatch(text, begin, mark.start())
        if number is not None:
            return _number(composer, number, begin), mark.start()
        if mark.group() in ("\r", "\n", ""):
            return word, mark.start()
    raise AssertionError("the end of the text is a mark")


def _number(composer: Composer, match: re.Match[str], begin: int) -> int | float:
    whole, fraction, exponent = match.groups()
    digits = match.group().strip()
    number = float(digits)
    if len(digits) > _LONGEST_NUMBER or number in (float("inf"), float("-inf")):
        message = f"{digits[:40]} is not a number that can be computed with"
        raise composer.fail(composer.spot(begin, len(digits)), SYNTAX, message)
    if not fraction and not exponent:
        return int(whole)
    return int(number) if number == int(number) and abs(number) < LARGEST_WHOLE else number


def _lines(composer: Composer, text: str, begin: int) -> tuple[str, int]:
    """Text in three quotes; what stands before the first quotes' column is indentation."""
    end = text.find("'''", begin + 3)
    if end < 0:
        raise composer.fail(composer.spot(begin), SYNTAX, "not valid Hjson: text without its end quotes")
    indent = begin - (text.rfind("\n", 0, begin) + 1)
    first, *rest = text[begin + 3 : end].split("\n")
    lines = [re.sub(rf"^[ \t\r]{{0,{indent}}}", "", line) for line in rest]
    opening = first.lstrip(" \t\r")
    said = "\n".join(lines if rest and not opening else [opening, *lines]).replace("\r", "")
    return said.removesuffix("\n"), end + 3
