"""The schema of events as JSON Schema, for programs that read the log (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from groupkeeper.storage.event_log.event_kinds import (
    COMMON_FIELDS,
    EVENT_SCHEMA_VERSION,
    KINDS,
    Field,
    FieldType,
    Kind,
)

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_INTEGERS: Final = {"type": "array", "items": {"type": "integer"}}
_PARTITIONS: Final = {"type": "object", "additionalProperties": _INTEGERS}

TYPES: Final[dict[FieldType, dict[str, Any]]] = {
    FieldType.STRING: {"type": "string"},
    FieldType.STRING_OR_NULL: {"type": ["string", "null"]},
    FieldType.INTEGER: {"type": "integer"},
    FieldType.STRINGS: {"type": "array", "items": {"type": "string"}},
    FieldType.LIST: {"type": "array"},
    FieldType.PARTITIONS_BY_TOPIC: _PARTITIONS,
    FieldType.PARTITIONS_BY_MEMBER: {
        "type": ["object", "null"],
        "additionalProperties": _PARTITIONS,
    },
    FieldType.BYTES_BY_MEMBER: {
        "type": ["object", "null"],
        "additionalProperties": {"type": "integer"},
    },
}
"""The JSON Schema of each type of field."""


def json_schema() -> dict[str, Any]:
    """Return the schema of one event, which is one line of a segment.

    It allows unknown fields and kinds, because a later version may add them.
    """
    return {
        "$schema": DIALECT,
        "title": "An event of groupkeeper's event log",
        "description": f"One line of a segment, version {EVENT_SCHEMA_VERSION} of the schema.",
        **_object(COMMON_FIELDS),
        "allOf": [_of_kind(kind) for kind in KINDS],
    }


def _of_kind(kind: Kind) -> dict[str, Any]:
    """Return the part of the schema for the fields of one kind of event."""
    return {
        "if": {"properties": {"kind": {"const": kind.name}}, "required": ["kind"]},
        "then": {"description": kind.meaning, **_object(kind.fields)},
    }


def _object(fields: Iterable[Field]) -> dict[str, Any]:
    named = list(fields)
    required = [field.name for field in named if not field.is_optional]
    properties = {field.name: _of_field(field) for field in named}
    return {"type": "object", "properties": properties, "required": required}


def _of_field(field: Field) -> dict[str, Any]:
    schema = {**TYPES[field.type], "description": field.meaning}
    return schema | ({"items": _object(field.fields)} if field.fields else {})
