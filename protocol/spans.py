"""Finds where the fields of a message lie, without decoding them.

The gateway changes a few fields of a reply and copies the bytes of all others
(``coordinator/gateway/rewriting.py``). Like the safe reader, this code is made from the field
metadata of kio's classes. It checks every length against the bytes that are left, and every count
also against the budget of elements. It does not check what it does not decode: nulls, texts, and
the contents of tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from groupkeeper.protocol.fields import LAYOUTS, EntityClass, WireField, wire_fields
from groupkeeper.protocol.packing import PACK_INT32, classic_string, compact_string, varint
from groupkeeper.protocol.reader import Input, java_text

Span: TypeAlias = tuple[int, int]
"""The position of a value, and the position after it."""

Skip: TypeAlias = Callable[[Input], None]
"""Moves the position behind a value. Raises ProtocolError, IndexError or ``struct.error`` if the
value ends early."""

_INT8: Final = Struct(">b").unpack_from
_INT16: Final = Struct(">h").unpack_from
_INT32: Final = Struct(">i").unpack_from
_UUID_BYTES: Final = 16


class Tag(NamedTuple):
    """A tagged field, and where its content lies."""

    number: int
    start: int
    stop: int


class Shape:
    """The fields of one class of kio, in the order of their bytes."""

    def __init__(self, entity_type: EntityClass) -> None:
        self.flexible: bool = entity_type.__flexible__
        plain, tagged = wire_fields(entity_type)
        self.fields = {field.name: field for field in plain}
        self.tags = {field.name: field for field in tagged}
        self.skips = {name: _skip(field, self.flexible) for name, field in self.fields.items()}
        """The function that skips each field."""
        self._skip_plain = _in_sequence(plain, self.skips)

    def element(self, name: str) -> Shape:
        """Return the shape of the elements of an array."""
        return shape((self.fields.get(name) or self.tags[name]).entity)

    def skip(self, source: Input) -> None:
        """Skip a whole entity."""
        self.skip_plain(source)
        if self.flexible:
            source.skip_tags()

    def skip_plain(self, source: Input) -> None:
        """Skip an entity without its tagged fields, which come last."""
        for skip in self._skip_plain:
            skip(source)

    def spans(self, source: Input) -> dict[str, Span]:
        """Skip an entity without its tagged fields, and return where each field lies."""
        found: dict[str, Span] = {}
        for name, skip in self.skips.items():
            start = source.position
            skip(source)
            found[name] = start, source.position
        return found

    def count(self, source: Input) -> int:
        """Read the number of elements of an array; -1 or less for null."""
        return _length(source, _INT32, 4, self.flexible)

    def text(self, value: str) -> bytes:
        """Return the bytes of a string in this version."""
        return compact_string(value) if self.flexible else classic_string(value)

    def counted(self, count: int) -> bytes:
        """Return the bytes of a number of elements, as they stand before an array."""
        return varint(count + 1) if self.flexible else PACK_INT32(count)

    def array(self, elements: list[bytes]) -> bytes:
        """Return the bytes of an array from those of its elements."""
        return b"".join([self.counted(len(elements)), *elements])


@cache
def shape(entity_type: EntityClass) -> Shape:
    """Return the shape of a class. It is made on the first call."""
    return Shape(entity_type)


class Excerpt:
    """One entity inside a message: its bytes, and where its fields lie."""

    __slots__ = ("_data", "_spans", "shape", "start", "stop")

    def __init__(self, shape: Shape, source: Input) -> None:
        """Skip the entity at the position of ``source``."""
        self._data = source.data
        self.shape = shape
        self.start = source.position
        self._spans = shape.spans(source)
        if shape.flexible:
            source.skip_tags()
        self.stop = source.position

    @property
    def raw(self) -> bytes:
        """The bytes of the entity."""
        return self._data[self.start : self.stop]

    def int8(self, name: str) -> int:
        """Return the value of a field of one byte."""
        value: int = _INT8(self._data, self._spans[name][0])[0]
        return value

    def int16(self, name: str) -> int:
        """Return the value of a field of two bytes."""
        value: int = _INT16(self._data, self._spans[name][0])[0]
        return value

    def int32(self, name: str) -> int:
        """Return the value of a field of four bytes."""
        value: int = _INT32(self._data, self._spans[name][0])[0]
        return value

    def text(self, name: str) -> str | None:
        """Return the value of a string."""
        start, stop = self._spans[name]
        source = Input(self._data, start, 0)
        size = _length(source, _INT16, 2, self.shape.flexible)
        return None if size < 0 else java_text(self._data[stop - size : stop])

    def uuid(self, name: str) -> UUID | None:
        """Return the value of a UUID; None if it is zero, or if the version lacks the field."""
        if name not in self._spans:
            return None
        start, stop = self._spans[name]
        raw = self._data[start:stop]
        return UUID(bytes=raw) if any(raw) else None

    def count(self, name: str) -> int:
        """Return the number of elements of an array; -1 or less for null."""
        return self.shape.count(Input(self._data, self._spans[name][0], 0))

    def excerpts(self, name: str, max_elements: int) -> Iterator[Excerpt]:
        """Yield the entities of an array. A null array has none."""
        source = Input(self._data, self._spans[name][0], max_elements)
        return excerpts(self.shape, name, source)

    def replaced(self, new: Mapping[str, bytes]) -> bytes:
        """Return the bytes of the entity with other bytes for some fields."""
        pieces = []
        position = self.start
        for name, (start, stop) in self._spans.items():
            if name in new:
                pieces += [self._data[position:start], new[name]]
                position = stop
        return b"".join([*pieces, self._data[position : self.stop]])


def excerpts(owner: Shape, name: str, source: Input) -> Iterator[Excerpt]:
    """Yield the entities of an array at the position of ``source``, and leave it behind them."""
    item = owner.element(name)
    count = owner.count(source)
    if count > 0:
        source.take_elements(count, 1)
    for _ in range(count):
        yield Excerpt(item, source)


def read_tags(source: Input) -> list[Tag]:
    """Skip the tagged fields of an entity, and return where their contents lie."""
    count = source.unsigned_varint()
    source.take_elements(count, 2)
    found = []
    for _ in range(count):
        number = source.unsigned_varint()
        size = source.unsigned_varint()
        start = source.position
        source.take_skipped(size)
        found.append(Tag(number, start, source.position))
    return found


def written_tags(tags: list[tuple[int, bytes]]) -> bytes:
    """Return the bytes of tagged fields from their numbers and contents."""
    pieces = [varint(len(tags))]
    for number, content in tags:
        pieces += [varint(number), varint(len(content)), content]
    return b"".join(pieces)


# --- functions that skip --------------------------------------------------------------------------

_Unpack: TypeAlias = Callable[[bytes, int], tuple[int, ...]]


def _length(source: Input, unpack: _Unpack, size: int, flexible: bool) -> int:
    """Read a length or a count. It is negative for null."""
    if flexible:
        return source.unsigned_varint() - 1
    length = unpack(source.data, source.position)[0]
    source.position += size
    return length


def _in_sequence(plain: list[WireField], skips: dict[str, Skip]) -> list[Skip]:
    """Return the functions that skip all fields. Adjacent fields of fixed size have one."""
    functions: list[Skip] = []
    size = 0
    for field in plain:
        fixed = _fixed_bytes(field)
        if fixed:
            size += fixed
            continue
        if size:
            functions.append(_skip_fixed(size))
            size = 0
        functions.append(skips[field.name])
    if size:
        functions.append(_skip_fixed(size))
    return functions


def _fixed_bytes(field: WireField) -> int:
    """Return the size of a field, or 0 if its size differs from message to message."""
    return 0 if field.is_array else _item_bytes(field)


def _item_bytes(field: WireField) -> int:
    if field.kafka_type == "uuid":
        return _UUID_BYTES
    layout = LAYOUTS.get(field.kafka_type)
    return Struct(">" + layout).size if layout else 0


def _skip(field: WireField, flexible: bool) -> Skip:
    item = _skip_item(field, flexible)
    return _skip_array(item, _item_bytes(field), flexible) if field.is_array else item


def _skip_item(field: WireField, flexible: bool) -> Skip:
    if field.entity is not None:
        whole = shape(field.entity).skip
        return _skip_nullable(whole) if field.nullable and not field.is_array else whole
    size = _item_bytes(field)
    if size:
        return _skip_fixed(size)
    return _skip_sized(flexible, is_text=field.kafka_type == "string")


def _skip_fixed(size: int) -> Skip:
    def skip(source: Input) -> None:
        source.take_skipped(size)

    return skip


def _skip_sized(flexible: bool, *, is_text: bool) -> Skip:
    unpack, size = (_INT16, 2) if is_text else (_INT32, 4)

    def skip(source: Input) -> None:
        length = _length(source, unpack, size, flexible)
        if length > 0:
            source.take_skipped(length)

    return skip


def _skip_nullable(whole: Skip) -> Skip:
    def skip(source: Input) -> None:
        if source.take(1)[0] < 0x80:  # KIP-893: -1 is null
            whole(source)

    return skip


def _skip_array(item: Skip, item_bytes: int, flexible: bool) -> Skip:
    def skip_all(source: Input) -> None:
        count = _length(source, _INT32, 4, flexible)
        if count > 0:
            source.take_skipped(count * item_bytes)

    def skip_each(source: Input) -> None:
        count = _length(source, _INT32, 4, flexible)
        if count > 0:
            source.take_elements(count, 1)
            for _ in range(count):
                item(source)

    return skip_all if item_bytes else skip_each
