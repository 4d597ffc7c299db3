"""The fields of kio's classes, from which the reader and the writer of messages are built."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, Final, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

EntityClass: TypeAlias = Any
"""A class of kio. It is Any for a type checker, because every API and version has its own class."""

LAYOUTS: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
"""kio's name of a fixed-size type -> its format character in ``struct``. Durations and times are
milliseconds.
"""


class WireField(NamedTuple):
    """The properties of one field that readers and writers need."""

    name: str
    what: str
    """The class and the field, for error messages."""
    kafka_type: str
    """kio's name of the type; "" if the field is an entity or an array of entities."""
    entity: EntityClass | None
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any
    """The value if a tagged field is not sent; ``MISSING`` if it has no default."""

    @property
    def layout(self) -> str:
        """Return the format character of ``struct`` if the field is one value of fixed size, else
        "".
        """
        return "" if self.is_array else LAYOUTS.get(self.kafka_type, "")


def wire_fields(entity_type: EntityClass) -> tuple[list[WireField], list[WireField]]:
    """Return the untagged fields in wire order, and the tagged fields in the order of their tags.

    Raises NotImplementedError if a tagged field has no default.
    """
    hints = get_type_hints(entity_type)
    plain: list[WireField] = []
    tagged: list[WireField] = []
    for field in fields(entity_type):
        hint, nullable = _without_none(hints[field.name])
        is_array = get_origin(hint) is tuple
        if is_array:
            hint = get_args(hint)[0]
        tag = field.metadata.get("tag")
        if tag is not None and field.default is MISSING:
            raise NotImplementedError(f"the tagged field {field.name} without a default")
        (plain if tag is None else tagged).append(
            WireField(
                field.name,
                f"{entity_type.__name__}.{field.name}",
                field.metadata.get("kafka_type", ""),
                hint if is_dataclass(hint) else None,
                is_array,
                nullable,
                tag,
                field.default,
            )
        )
    return plain, sorted(tagged, key=lambda field: field.tag or 0)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) is UnionType:
        members = [member for member in get_args(hint) if member is not type(None)]
        assert len(members) == 1, hint
        return members[0], True
    return hint, False
