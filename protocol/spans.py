"""Finds where the fields of a message lie, without decoding them.

The gateway changes a few fields of a reply and copies the bytes of all others
(``coordinator/gateway/rewriting.py``). This must be fast, because nearly every Produce reply needs
it. So a function is generated for each class of kio, from the metadata of its fields.

The function checks every count in two ways: against the bytes that are left, and against the
budget, which is the number of elements that all arrays may still have. It checks every position
against the end. It does not check nulls, texts, and the contents of tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.fields import LAYOUTS, EntityClass, WireField, wire_fields
from groupkeeper.protocol.packing import PACK_INT32, classic_string, compact_string, varint
from groupkeeper.protocol.plain_reader import long_length
from groupkeeper.protocol.reader import Input, java_text

Walk: TypeAlias = Callable[[bytes, int, int, int], tuple[int, ...]]
"""A function of (bytes, position, end, budget of elements). It returns the position of each field,
the position after the last field, and the number of elements that is left of the budget.

It raises ProtocolError, IndexError or ``struct.error`` for a field that ends early. A position that
it returns may be beyond the end. The caller checks this.
"""

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
    """The layout of one class of kio. It finds the fields of entities, and skips them."""

    def __init__(self, entity_type: EntityClass) -> None:
        self.flexible: bool = entity_type.__flexible__
        plain, tagged = wire_fields(entity_type)
        self.fields = {field.name: field for field in plain}
        self.tags = {field.name: field for field in tagged}
        self.places = {field.name: place for place, field in enumerate(plain)}
        """Field -> the index of its position in the result of ``walk_all``."""
        self._walk_field: dict[str, Walk] = {}

    @cached_property
    def _walk_all(self) -> Walk:
        return _compiled([*self.fields.values()], self.flexible, with_tags=self.flexible)

    @cached_property
    def _walk_plain(self) -> Walk:
        return _compiled([*self.fields.values()], self.flexible, with_tags=False)

    def element(self, name: str) -> Shape:
        """Return the shape of the elements of the array field ``name``."""
        return shape((self.fields.get(name) or self.tags[name]).entity)

    def walk_all(self, source: Input) -> Sequence[int]:
        """Skip an entity. Return the position of each field, of the tagged fields (in a flexible
        version) and of the end, and then the number of elements that is left of the budget.
        """
        return _walked(self._walk_all, source)

    def skip_plain(self, source: Input) -> None:
        """Skip an entity without its tagged fields, which come last."""
        _walked(self._walk_plain, source)

    def skip_field(self, name: str, source: Input) -> None:
        walk = self._walk_field.get(name)
        if walk is None:
            walk = _compiled([self.fields[name]], self.flexible, with_tags=False)
            self._walk_field[name] = walk
        _walked(walk, source)

    def count(self, source: Input) -> int:
        """Read the number of elements of an array, and check it. A null array has none."""
        count = _length(source, _INT32, 4, self.flexible)
        if count > 0:
            source.take_elements(count, 1)
        return max(count, 0)

    def text(self, value: str) -> bytes:
        """Return the bytes of a string in this version."""
        return compact_string(value) if self.flexible else classic_string(value)

    def counted(self, count: int) -> bytes:
        """Return the bytes of a number of elements, as they stand before an array."""
        return varint(count + 1) if self.flexible else PACK_INT32(count)

    def array(self, elements: list[bytes]) -> bytes:
        """Join the bytes of elements into the bytes of an array."""
        return b"".join([self.counted(len(elements)), *elements])


@cache
def shape(entity_type: EntityClass) -> Shape:
    """Return the shape of a class. It is made on the first call."""
    return Shape(entity_type)


class Excerpt:
    """One entity inside a message: its bytes, and where its fields lie."""

    __slots__ = ("_data", "_positions", "shape", "start", "stop")

    def __init__(self, shape: Shape, source: Input) -> None:
        """Skip the entity at the position of ``source``."""
        self._data = source.data
        self.shape = shape
        self.start = source.position
        self._positions = shape.walk_all(source)
        self.stop = source.position

    @property
    def raw(self) -> bytes:
        return self._data[self.start : self.stop]

    def int8(self, name: str) -> int:
        """Return the value of a field of one byte."""
        value: int = _INT8(self._data, self._positions[self.shape.places[name]])[0]
        return value

    def int16(self, name: str) -> int:
        """Return the value of a field of two bytes."""
        value: int = _INT16(self._data, self._positions[self.shape.places[name]])[0]
        return value

    def int32(self, name: str) -> int:
        """Return the value of a field of four bytes."""
        value: int = _INT32(self._data, self._positions[self.shape.places[name]])[0]
        return value

    def text(self, name: str) -> str | None:
        """Return the value of a string; None if it is null."""
        source = self._at(name, 0)
        size = _length(source, _INT16, 2, self.shape.flexible)
        return None if size < 0 else java_text(source.take(size))

    def uuid(self, name: str) -> UUID | None:
        """Return the value of a UUID; None if it is zero, or if the version lacks the field."""
        if name not in self.shape.places:
            return None
        raw = self._at(name, 0).take(_UUID_BYTES)
        return UUID(bytes=raw) if any(raw) else None

    def count(self, name: str) -> int:
        """Return the number of elements of an array; -1 or less for null."""
        return _length(self._at(name, 0), _INT32, 4, self.shape.flexible)

    def excerpts(self, name: str, max_elements: int) -> Iterator[Excerpt]:
        """Yield the entities of an array. A null array has none. ``max_elements`` is the budget."""
        return excerpts(self.shape, name, self._at(name, max_elements))

    def replaced(self, new: Mapping[str, bytes]) -> bytes:
        """Return the bytes of the entity. ``new`` has other bytes for some fields, by name."""
        pieces = []
        position = self.start
        for name, place in self.shape.places.items():
            if name in new:
                pieces += [self._data[position : self._positions[place]], new[name]]
                position = self._positions[place + 1]
        return b"".join([*pieces, self._data[position : self.stop]])

    def _at(self, name: str, max_elements: int) -> Input:
        return Input(self._data, self._positions[self.shape.places[name]], max_elements)


def excerpts(owner: Shape, name: str, source: Input) -> Iterator[Excerpt]:
    """Yield the entities of the array at the position of ``source``. Move ``source`` past them."""
    item = owner.element(name)
    for _ in range(owner.count(source)):
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


def written_tags(tags: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the bytes of tagged fields from their numbers and contents."""
    pieces = [varint(len(tags))]
    for number, content in tags:
        pieces += [varint(number), varint(len(content)), content]
    return b"".join(pieces)


def _length(
    source: Input, unpack: Callable[[bytes, int], tuple[int, ...]], size: int, flexible: bool
) -> int:
    """Read a length or a count. It is negative for null."""
    if flexible:
        return source.unsigned_varint() - 1
    length = unpack(source.data, source.position)[0]
    source.position += size
    return length


# --- functions that are generated -----------------------------------------------------------------


def _walked(walk: Walk, source: Input) -> tuple[int, ...]:
    found = walk(source.data, source.position, source.end, source.elements_left)
    stop = found[-2]
    if stop > source.end:
        raise ProtocolError("truncated", f"a field ends {stop - source.end} bytes after the end")
    source.position = stop
    source.elements_left = found[-1]
    return found


def _compiled(fields: list[WireField], flexible: bool, *, with_tags: bool) -> Walk:
    """Generate the function that finds the positions of adjacent fields."""
    source = _Source(flexible)
    positions = []
    for field in fields:
        positions.append(source.add_position())
        source.add_field(field, "    ")
    if with_tags:
        positions.append(source.add_position())
        source.add_tags("    ")
    found = ", ".join([*positions, "p", "left"])
    lines = ["def walk(data, p, end, left):", *source.lines, f"    return {found}"]
    names: dict[str, Any] = {
        "int16": _INT16,
        "int32": _INT32,
        "long_length": long_length,
        "beyond_end": _beyond_end,
        "too_many": _too_many,
        "skip_tags": _skip_tags,
    }
    exec("\n".join(lines), names)  # noqa: S102  our own source
    walk: Walk = names["walk"]
    return walk


class _Source:
    """The lines of one generated function. ``p`` is the position, ``n`` a length, ``left`` the
    budget.
    """

    def __init__(self, flexible: bool) -> None:
        self.lines: list[str] = []
        self._flexible = flexible
        self._count = 0

    def add_position(self) -> str:
        """Add a line that stores the position in a new variable. Return the variable's name."""
        self._count += 1
        self._add("    ", f"p{self._count} = p")
        return f"p{self._count}"

    def add_field(self, field: WireField, indent: str) -> None:
        """Add the lines that move the position behind a field."""
        if field.is_array:
            self._add_array(field, indent)
        elif field.entity is not None:
            self._add_entity(field.entity, indent, nullable=field.nullable)
        elif size := _fixed_bytes(field):
            self._add(indent, f"p += {size}")
        else:
            self._add_sized(field.kafka_type, indent)

    def add_tags(self, indent: str) -> None:
        """Add the lines that skip tagged fields. Usually there are none."""
        self._add(indent, "if data[p]: p, left = skip_tags(data, p, left)", "else: p += 1")

    def _add_array(self, field: WireField, indent: str) -> None:
        self._add_length(indent, "int32")
        self._add(indent, "if n > 0:")
        inner = indent + "    "
        size = _fixed_bytes(field)
        if size:
            self._add(inner, f"p += n * {size}")
            return
        self._count += 1
        body = inner + "    "
        self._add(
            inner,
            "if n > end - p: raise beyond_end(n, end - p)",
            "left -= n",
            "if left < 0: raise too_many()",
            f"for i{self._count} in range(n):",
        )
        if field.entity is not None:
            self._add_entity(field.entity, body, nullable=False)
        else:
            self._add_sized(field.kafka_type, body)

    def _add_entity(self, entity_type: EntityClass, indent: str, *, nullable: bool) -> None:
        if nullable:
            self._add(indent, "p += 1", "if data[p - 1] < 128:")  # KIP-893: -1 is null
            indent += "    "
        plain, _ = wire_fields(entity_type)
        for field in plain:
            self.add_field(field, indent)
        if entity_type.__flexible__:
            self.add_tags(indent)

    def _add_sized(self, kafka_type: str, indent: str) -> None:
        self._add_length(indent, "int16" if kafka_type == "string" else "int32")
        self._add(indent, "if n > 0: p += n")

    def _add_length(self, indent: str, classic: str) -> None:
        """Add the lines that read a length into ``n``. It is negative for null."""
        if self._flexible:
            self._add(indent, "n = data[p] - 1", "p += 1")
            self._add(indent, "if n >= 127: n, p = long_length(data, p)")
        else:
            size = 2 if classic == "int16" else 4
            self._add(indent, f"n = {classic}(data, p)[0]", f"p += {size}")

    def _add(self, indent: str, *lines: str) -> None:
        self.lines += [indent + line for line in lines]


def _fixed_bytes(field: WireField) -> int:
    """Return the size of the field's value in bytes, or of one element of an array. Return 0 if the
    size varies.
    """
    if field.kafka_type == "uuid":
        return _UUID_BYTES
    layout = LAYOUTS.get(field.kafka_type)
    return Struct(">" + layout).size if layout else 0


def _beyond_end(count: int, left: int) -> ProtocolError:
    return ProtocolError("count_beyond_end", f"{count} elements, {left} bytes left")


def _too_many() -> ProtocolError:
    return ProtocolError("too_many_elements", "more elements in all arrays than are walked over")


def _skip_tags(data: bytes, position: int, left: int) -> tuple[int, int]:
    source = Input(data, position, left)
    source.elements_left = left
    source.skip_tags()
    return source.position, source.elements_left
