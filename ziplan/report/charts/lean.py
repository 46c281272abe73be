"""SVG as matplotlib writes it, made small and fit to stand within a page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
FONTS = "system-ui, sans-serif"


def lean(text: str, prefix: str, said: str) -> str:
    """The drawing without metadata, unused identifiers and needless digits; named for those who hear it."""
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    root = ET.fromstring(text)  # noqa: S314 - matplotlib wrote it a moment ago
    for child in list(root):
        if child.tag == f"{{{SVG}}}metadata":
            root.remove(child)
    # Names of matplotlib's own change from run to run.
    used = dict.fromkeys(re.findall(r'(?:url\(|href=")#([^)"]+)', text))
    names = {old: f"{prefix}{number}" for number, old in enumerate(used)}
    for element in root.iter():
        _slim(element, names)
    _unwrap(root)
    box = root.get("viewBox", "0 0 1 1").split()
    root.attrib.clear()
    root.attrib |= {"viewBox": " ".join(box), "width": box[2], "height": box[3], "role": "img"}
    root.attrib |= {"aria-label": said, "font-family": FONTS}
    written = ET.tostring(root, encoding="unicode")
    return re.sub(r">\s+<", "><", written)


def _unwrap(element: ET.Element) -> None:
    """Groups that say nothing of what they hold give way to it."""
    kept: list[ET.Element] = []
    for child in element:
        _unwrap(child)
        plain = child.tag == f"{{{SVG}}}g" and not child.attrib
        kept += list(child) if plain else [child]
    element[:] = kept


def _slim(element: ET.Element, names: Mapping[str, str]) -> None:
    """One element's attributes, in place; identifiers get their new names, those that nothing uses go."""
    own = element.attrib.pop("id", "")
    if own in names:
        element.set("id", names[own])
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for key, value in element.attrib.items():
        if key in _SHORTER:
            element.set(key, _SHORTER[key](value))
        elif key in ("style", "clip-path"):
            named = _URL.sub(lambda url: f"url(#{names[url[1]]})", value)
            element.set(key, _FONT.sub("", named))
        elif key == f"{{{XLINK}}}href":
            element.set(key, f"#{names[value[1:]]}")


# The page's own font, or the one that the drawing names once, is taken.
_FONT = re.compile(r"font-family: [^;]*;? *")
_URL = re.compile(r"url\(#([^)]+)\)")
_NUMBER = re.compile(r"-?[0-9]+\.[0-9]+")
_STEP = re.compile(r"([A-Za-z])([^A-Za-z]*)")


def _short_path(text: str) -> str:
    """A path with a tenth of a pixel as its grain; lines along an axis say one number."""
    short: list[str] = []
    at: tuple[str, str] | None = None
    for letter, numbers in _STEP.findall(text):
        given = [f"{float(number):.1f}".removesuffix(".0") for number in numbers.split()]
        if letter not in "ML" or len(given) != 2:
            short.append(letter + " ".join(given))
            at = None
            continue
        x, y = given
        if letter == "L" and at == (x, y):
            continue
        if letter == "L" and at is not None and at[0] == x:
            short.append(f"V{y}")
        elif letter == "L" and at is not None and at[1] == y:
            short.append(f"H{x}")
        else:
            short.append(f"{letter}{x} {y}")
        at = x, y
    return "".join(short)


def _short_numbers(text: str) -> str:
    return _NUMBER.sub(lambda number: f"{float(number[0]):.6g}", text)


_SHORTER: dict[str, Callable[[str], str]] = {
    "d": _short_path,
    **dict.fromkeys(("x", "y", "width", "height", "transform"), _short_numbers),
}
