"""The writer of messages: encodes any kio entity class from plain values.

For each class it generates one small function on first use, from the same field metadata as
``protocol/reader.py``. The function reads values by the names of kio's fields from any object: a
result of the core, a ``Row``, an entity of kio. Values of fields that a version lacks are ignored,
so a handler builds a reply once for all versions. A missing field raises AttributeError, or
KeyError if it is a top-level field of a response. A missing tagged field is not sent.

Error codes, durations and times are integers, and a topic id is in Kafka's printed form. An array
may be ``Written``, for a reply that is encoded in parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from struct import Struct, pack
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, TypeAlias

from groupkeeper.protocol.fields import EntityClass, WireField, wire_fields
from groupkeeper.protocol.packing import (
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
"""The values of an entity, by the names of its fields."""


class Written:
    """An array whose elements are already encoded. ``pieces`` are their bytes, and ``len`` returns
    the number of elements.
    """

    __slots__ = ("_length", "pieces")

    def __init__(self, length: int, pieces: Sequence[bytes | bytearray]) -> None:
        self._length = length
        self.pieces = pieces

    def __len__(self) -> int:
        return self._length


WriteAll: TypeAlias = Callable[[bytearray, Iterable[Any]], None]
"""Appends several entities of one class to a buffer."""

Write: TypeAlias = Callable[[bytearray, Any], None]
"""Appends one value to a buffer."""

WriteFrame: TypeAlias = Callable[[int, dict[str, Any]], bytes]
"""Returns the frame of a response from its correlation id and the values of its fields."""

_LENGTH: Final = Struct(">i")


@cache
def entities_writer(entity_type: EntityClass) -> WriteAll:
    """Return the function that encodes entities of this class from their attributes."""
    source = _Source(entity_type, "item", "item.{}", getattr)
    lines = [f"        {line}" for line in source.lines()] or ["        pass"]
    write: WriteAll = source.compiled("def write(out, items):", "    for item in items:", *lines)
    return write


def write_entity(entity_type: EntityClass, values: Any) -> bytearray:
    """Return the bytes of an entity, without a header. ``values`` has its fields as attributes."""
    out = bytearray()
    entities_writer(entity_type)(out, (values,))
    return out


def frame_writer(entity_type: EntityClass, head: Struct) -> WriteFrame:
    """Return the function that encodes the frame of a response from values by name.

    ``head`` packs the length, the correlation id, and the rest of the response header.
    """
    source = _Source(entity_type, "values", "values['{}']", dict.get)
    source.names.update(head=head.pack, set_length=_LENGTH.pack_into)
    arrays = [part for part in source.parts if not part.is_piece]
    pieces = " + ".join(part.code if part.is_piece else part.empty for part in source.parts)
    lines = [
        f"body = {pieces}",
        f"return head(len(body) + {head.size - _LENGTH.size}, correlation_id) + body",
    ]
    if not all(part.empty for part in arrays):
        lines = []
    elif arrays:
        # Most replies of a rebalance have no members. The bytes of such a reply are one sum.
        are_empty = " or ".join(f"len({part.value})" for part in arrays)
        lines = [f"if not ({are_empty}):", *[f"    {line}" for line in lines]]
    if arrays:
        lines += [
            "out = bytearray(head(0, correlation_id))",
            *source.lines(),
            f"set_length(out, 0, len(out) - {_LENGTH.size})",
            "return bytes(out)",
        ]
    write: WriteFrame = source.compiled(
        "def write(correlation_id, values):", *[f"    {line}" for line in lines]
    )
    return write


@cache
def element_class(entity_type: EntityClass, path: str) -> EntityClass:
    """Return the class of the elements of a nested array, such as ``topics.partitions``."""
    for name in path.split("."):
        plain, tagged = wire_fields(entity_type)
        entity_type = next(f.entity for f in (*plain, *tagged) if f.name == name)
    return entity_type


# --- the source of one function -------------------------------------------------------------------


class _Part(NamedTuple):
    code: str
    is_piece: bool
    """True for an expression that yields bytes, False for a statement that appends to ``out``."""
    value: str = ""
    empty: str = ""
    """``value`` is the expression for an array that cannot be null. ``empty`` is the literal of the
    array's bytes if it has no elements. Both are "" for any other field.
    """


class _Source:
    """The source code of a function that encodes entities of a class, and the names that
    it uses.
    """

    def __init__(
        self, entity_type: EntityClass, entity: str, value: str, get: Callable[[Any, str, Any], Any]
    ) -> None:
        """``entity`` is the name of the object with the values, ``value`` the expression for one
        value. ``get`` is the function that looks up a value that may be missing.
        """
        self.parts: list[_Part] = []
        self.names: dict[str, Any] = {}
        self._entity_type = entity_type
        self._value = value
        self._layout = ""
        self._run: list[str] = []
        flexible: bool = entity_type.__flexible__
        plain, tagged = wire_fields(entity_type)
        for field in plain:
            self._add_field(field, flexible=flexible)
        if tagged:
            write_tags = self._named("write_tags", _tags_writer(tagged, get))
            self._add(_Part(f"{write_tags}(out, {entity})", is_piece=False))
        elif flexible and self._layout:
            self._layout += "x"
        elif flexible:
            self._add(_Part(repr(NO_TAGS), is_piece=True))
        self._end_run()

    def lines(self) -> list[str]:
        """Return the statements of the generated function, in the order of the fields."""
        return [f"out += {part.code}" if part.is_piece else part.code for part in self.parts]

    def compiled(self, *lines: str) -> Any:
        """Return the function ``write`` that the lines define."""
        entity_type = self._entity_type
        filename = f"<writer of {entity_type.__name__} v{entity_type.__version__}>"
        exec(compile("\n".join(lines), filename, "exec"), self.names)  # noqa: S102  our own source
        return self.names["write"]

    def _add_field(self, field: WireField, *, flexible: bool) -> None:
        value = self._value.format(field.name)
        if field.layout:
            # Adjacent fixed-size fields are packed at once.
            self._layout += field.layout
            self._run.append(value)
        elif field.is_array or field.entity is not None:
            write = _value_writer(field, flexible=flexible)
            code = f"{self._named(f'write_{field.name}', write)}(out, {value})"
            if field.is_array and not field.nullable:
                empty = varint(1) if flexible else PACK_INT32(0)
                self._add(_Part(code, is_piece=False, value=value, empty=repr(empty)))
            else:
                self._add(_Part(code, is_piece=False))
        else:
            encode, null = _ENCODERS[field.kafka_type, flexible]
            code = f"{self._named(encode.__name__, encode)}({value})"
            if field.nullable and null:
                code = f"({null!r} if {value} is None else {code})"
            self._add(_Part(code, is_piece=True))

    def _add(self, part: _Part) -> None:
        self._end_run()
        self.parts.append(part)

    def _end_run(self) -> None:
        if self._layout:
            name = f"pack_{self._layout.replace('?', 'bool')}"
            pack_run = self._named(name, _packer(self._layout))
            self.parts.append(_Part(f"{pack_run}({', '.join(self._run)})", is_piece=True))
            self._layout, self._run = "", []

    def _named(self, name: str, value: Any) -> str:
        self.names[name] = value
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
"""(kio's name of the type, flexible) -> (the function that encodes a value, the bytes of null). If
the bytes are empty, the function also encodes None.
"""


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
        count = len(items)
        out += varint(count + 1) if flexible else PACK_INT32(count)
        if type(items) is Written:
            for piece in items.pieces:
                out += piece
        elif count:
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


def _tags_writer(tagged: list[WireField], get: Callable[[Any, str, Any], Any]) -> Write:
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
            value = get(item, name, default)
            if value is None or value is default:
                continue
            content = bytearray()
            write(content, value)
            if content != unsent:
                count += 1
                body += tag + varint(len(content)) + content
        out += varint(count) + body

    return write_tags
