"""The writer of messages: any kio entity class, from plain values.

For each class one small function is generated on first use, from the field metadata that also
drives ``protocol/reader.py``. It reads values by the names of kio's fields from any object: a
result of the core, a ``Row``, an entity of kio's. So a handler states a reply once for all
versions: a value for a field that a version lacks is not looked at. A field that is not given is an
AttributeError, except a tagged one, which is then not sent.

Error codes, durations and times are integers, and a topic id is Kafka's printed form. An array may
be given as ``Written``, for a reply that is rendered in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from struct import Struct, pack
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, TypeAlias

from protocol.fields import EntityClass, WireField, wire_fields
from protocol.packing import (
    NO_TAGS,
    PACK_INT32,
    classic_bytes,
    classic_string,
    compact_bytes,
    compact_string,
    raw_topic_id,
    varint,
)

Row = SimpleNamespace
"""An entity as values by name."""


class Written(NamedTuple):
    """An array whose elements were written before, in pieces."""

    length: int
    pieces: Sequence[bytes | bytearray]


WriteAll: TypeAlias = Callable[[bytearray, Iterable[Any]], None]
"""Writes each of several entities of one class behind what is there."""

Write: TypeAlias = Callable[[bytearray, Any], None]
"""Writes one value behind what is there."""


@cache
def entities_writer(entity_type: EntityClass) -> WriteAll:
    """Return the function that writes entities of this class."""
    flexible: bool = entity_type.__flexible__
    plain, tagged = wire_fields(entity_type)
    function = _Function()
    for field in plain:
        if field.layout:
            function.add_fixed(field)
        elif field.is_array or field.entity is not None:
            function.add_write(field, _value_writer(field, flexible=flexible))
        else:
            function.add_encoded(field, flexible=flexible)
    if tagged:
        function.add_tags(_tags_writer(tagged))
    elif flexible:
        function.add_no_tags()
    return function.compiled(f"<writer of {entity_type.__name__} v{entity_type.__version__}>")


def write_entity(entity_type: EntityClass, values: Any) -> bytearray:
    """Write one entity."""
    out = bytearray()
    entities_writer(entity_type)(out, (values,))
    return out


@cache
def element_class(entity_type: EntityClass, path: str) -> EntityClass:
    """Return the class of the elements of a nested array, such as ``topics.partitions``."""
    for name in path.split("."):
        plain, tagged = wire_fields(entity_type)
        entity_type = next(f.entity for f in (*plain, *tagged) if f.name == name)
    return entity_type


# --- the source of one function -------------------------------------------------------------------


class _Function:
    """The source of a writer, statement by statement, and what its names mean."""

    def __init__(self) -> None:
        self._lines = ["def write(out, items):", "    for item in items:"]
        self._names: dict[str, Any] = {}
        self._layout = ""
        self._fixed: list[str] = []

    def add_fixed(self, field: WireField) -> None:
        """Write a value of a fixed size; neighbours are packed at once."""
        self._layout += field.layout
        self._fixed.append(f"item.{field.name}")

    def add_encoded(self, field: WireField, *, flexible: bool) -> None:
        """Write a text, bytes or an id."""
        encode, null = _ENCODERS[field.kafka_type, flexible]
        value = f"item.{field.name}"
        name = self._named(encode.__name__, encode)
        if field.nullable and null:
            self._add(f"out += {null!r} if {value} is None else {name}({value})")
        else:
            self._add(f"out += {name}({value})")

    def add_write(self, field: WireField, write: Write) -> None:
        """Write an array or a nested entity."""
        self._add(f"{self._named(f'write_{field.name}', write)}(out, item.{field.name})")

    def add_tags(self, write: Write) -> None:
        """Write the tagged fields."""
        self._add(f"{self._named('write_tags', write)}(out, item)")

    def add_no_tags(self) -> None:
        """Write that there are no tagged fields."""
        if self._layout:
            self._layout += "x"
        else:
            self._add(f"out += {NO_TAGS!r}")

    def compiled(self, filename: str) -> WriteAll:
        """Return the function."""
        self._add("")
        if len(self._lines) == 3:  # an entity without fields
            self._lines.append("        pass")
        exec(compile("\n".join(self._lines), filename, "exec"), self._names)  # noqa: S102 - ours
        write: WriteAll = self._names["write"]
        return write

    def _add(self, statement: str) -> None:
        if self._layout:
            pack_run = self._named(f"pack_{self._layout}".replace("?", "t"), _packer(self._layout))
            self._lines.append(f"        out += {pack_run}({', '.join(self._fixed)})")
            self._layout, self._fixed = "", []
        self._lines.append(f"        {statement}")

    def _named(self, name: str, value: Any) -> str:
        self._names[name] = value
        return name


def _packer(layout: str) -> Callable[..., bytes]:
    return Struct(">" + layout).pack


_ENCODERS: Final[dict[tuple[str, bool], tuple[Callable[[Any], bytes], bytes]]] = {
    ("string", False): (classic_string, b"\xff\xff"),
    ("string", True): (compact_string, b"\0"),
    ("bytes", False): (classic_bytes, b"\xff\xff\xff\xff"),
    ("bytes", True): (compact_bytes, b"\0"),
    ("records", False): (classic_bytes, b"\xff\xff\xff\xff"),
    ("records", True): (compact_bytes, b"\0"),
    ("uuid", False): (raw_topic_id, b""),
    ("uuid", True): (raw_topic_id, b""),
}
"""By Kafka's type, and whether the version is flexible: what encodes a value, and what null is."""


# --- single values: arrays, nested entities, tags -------------------------------------------------


def _value_writer(field: WireField, *, flexible: bool) -> Write:
    if field.is_array:
        return _array_writer(field, flexible=flexible)
    if field.entity is not None:
        return _entity_writer(field)
    if field.layout:
        packed = _packer(field.layout)
        return lambda out, value: out.extend(packed(value))
    encode, null = _ENCODERS[field.kafka_type, flexible]

    def write(out: bytearray, value: Any) -> None:
        out += null if value is None and null else encode(value)

    return write


def _entity_writer(field: WireField) -> Write:
    write_all = entities_writer(field.entity)

    def write(out: bytearray, value: Any) -> None:
        write_all(out, (value,))

    def write_nullable(out: bytearray, value: Any) -> None:
        if value is None:
            out += b"\xff"  # KIP-893: -1 is null
        else:
            out += b"\x01"
            write_all(out, (value,))

    return write_nullable if field.nullable else write


def _array_writer(field: WireField, *, flexible: bool) -> Write:
    write_all = _elements_writer(field, flexible=flexible)

    def write(out: bytearray, items: Any) -> None:
        if items is None and field.nullable:
            out += b"\0" if flexible else b"\xff\xff\xff\xff"
            return
        count = items.length if type(items) is Written else len(items)
        out += varint(count + 1) if flexible else PACK_INT32(count)
        if type(items) is Written:
            for piece in items.pieces:
                out += piece
        else:
            write_all(out, items)

    return write


def _elements_writer(field: WireField, *, flexible: bool) -> WriteAll:
    if field.entity is not None:
        return entities_writer(field.entity)
    single = field._replace(is_array=False, nullable=False)
    if single.layout:

        def write_run(out: bytearray, items: Any) -> None:
            out += pack(f">{len(items)}{single.layout}", *items)

        return write_run
    write = _value_writer(single, flexible=flexible)

    def write_each(out: bytearray, items: Any) -> None:
        for item in items:
            write(out, item)

    return write_each


def _tags_writer(tagged: list[WireField]) -> Write:
    known = []
    for field in tagged:
        write = _value_writer(field, flexible=True)
        unsent = bytearray()
        if field.default is not None:
            write(unsent, field.default)
        known.append((varint(field.tag or 0), field.name, field.default, write, unsent))

    def write_tags(out: bytearray, item: Any) -> None:
        count = 0
        body = bytearray()
        for tag, name, default, write, unsent in known:
            value = getattr(item, name, default)
            if value is None or value is default:
                continue
            content = bytearray()
            write(content, value)
            if content != unsent:
                count += 1
                body += tag + varint(len(content)) + content
        out += varint(count) + body

    return write_tags
