"""JSON Schema of a machine file: a node's, with what a file may say in other words."""

from __future__ import annotations

from typing import Any

from ziplan.hardware.node import Node
from ziplan.hardware.tree import KINDS

Schema = dict[str, Any]
NAMED_PARTS = ("Gpu", "Drive", "Link")
BESIDE = {
    "schema": {"const": "ziplan.machine/1"},
    "extends": {"type": "string", "description": "a machine whose values hold where this file says nothing"},
    "environment": {"description": "what the machine ran when it was measured"},
    "not_measured": {"description": "what could not be measured, and why"},
    "contention": {"description": "how links behaved with all GPUs at once"},
}


def machine_schema() -> Schema:
    """The schema: a value may have a kind and a source, a part may be a name, nothing is required."""
    schema = Node.model_json_schema()
    parts = schema.pop("$defs")
    whole = {**_loose(schema), "$defs": {name: _part(name, part) for name, part in parts.items()}}
    whole["properties"] = {**BESIDE, **whole["properties"]}
    return whole


def _part(name: str, part: Schema) -> Schema:
    loose = _loose(part)
    if name not in NAMED_PARTS:
        return loose
    shipped = {"type": "string", "description": "the name of a shipped part"}
    loose["properties"] = {"part": shipped, **loose["properties"]}
    return {"anyOf": [shipped, loose]}


def _loose(record: Schema) -> Schema:
    properties = {name: _sourced(value) for name, value in record.get("properties", {}).items()}
    kept = {key: value for key, value in record.items() if key != "required"}
    return {**kept, "properties": properties}


def _sourced(value: Schema) -> Schema:
    """The value itself, or the value with where it comes from."""
    if "$ref" in value or "allOf" in value:
        return value
    if isinstance(value.get("additionalProperties"), dict):
        return {**value, "additionalProperties": _sourced(value["additionalProperties"])}
    bare = {key: part for key, part in value.items() if key not in ("default", "title")}
    leaf = {
        "type": "object",
        "properties": {"value": bare, "kind": {"enum": list(KINDS)}, "source": {"type": "string"}},
        "required": ["value"],
    }
    return {"anyOf": [bare, leaf]}
