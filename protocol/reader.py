"""The safe reader: decodes any kio entity from untrusted bytes.

kio's own reader reserves as much memory as a length field announces, so 40 hostile bytes can abort
the process (docs/design.md#codecs). Therefore kio's reader never reads from a socket. Our reader is
built from the same field metadata, once for each class on first use. It never reserves memory for
an announced length. It checks a length against the remaining bytes. It checks a count against the
bytes that its elements need at least, and against a budget of elements for the whole request. The
budget also limits the time of one request.

Some rules are those of Kafka's generated readers:

- Unknown tags are skipped.
- Bytes after the body are ignored.
- Text that is not UTF-8 is replaced.
- Any negative classic length is null.
- A compact string has at most 32,767 bytes.

One rule is stricter than Kafka's: a known tag must fill exactly its announced size. Durations and
times are plain integers of milliseconds, although kio's classes have other types for them.

This file is long because it has a reading function for each type of a field.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from struct import Struct, error, unpack_from
from typing import Any, Final, NamedTuple
from uuid import UUID

from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.fields import LAYOUTS, EntityClass, WireField, wire_fields
from groupkeeper.protocol.packing import MAX_STRING_BYTES
from groupkeeper.protocol.plain_reader import NOT_PLAIN, plain_reader

INVALID_TEXT_BYTES_AN_ELEMENT: Final = 16
"""If a text is not UTF-8, each 16 bytes of it count as one element of the budget, because replacing
them takes time.
"""

FREE_BYTES: Final = 1_048_576
BYTES_AN_ELEMENT: Final = 1_024
"""If a frame is longer than ``FREE_BYTES``, each 1,024 further bytes count as one element of the
budget, because long names take time to read, hash and write. The request of a leader of a thousand
members is below ``FREE_BYTES``.
"""

MAX_HEADER_TAGS: Final = 1000
"""The largest number of tags in a header. Clients send none, and Kafka has no limit."""

_NULL_UUID: Final = bytes(16)
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def java_text(raw: bytes) -> str:
    """Decode like Java's ``new String(bytes, UTF_8)``: each malformed sequence becomes one U+FFFD.

    Python and Java agree on where a malformed sequence ends, except for an encoded surrogate. In
    Java it becomes one U+FFFD.
    """
    return _ENCODED_SURROGATE.sub(b"\xff", raw).decode("utf-8", "replace")


def beside_bytes(frame: bytes, max_elements: int) -> int:
    """Return the budget of elements for a frame. Bytes above ``FREE_BYTES`` reduce the budget."""
    if len(frame) <= FREE_BYTES:
        return max_elements
    return max_elements - (len(frame) - FREE_BYTES) // BYTES_AN_ELEMENT


class Input:
    """The body of a request while it is read: the position, and the remaining budget.

    Reads of fixed size beyond the end raise ``struct.error`` or ``IndexError``. ``read_entity``
    turns these into "truncated".
    """

    __slots__ = ("data", "elements_left", "end", "max_elements", "position")

    def __init__(self, data: bytes, position: int, max_elements: int) -> None:
        """Start at ``position``. ``max_elements`` bounds all arrays and tags together."""
        self.data = data
        self.position = position
        self.end = len(data)
        self.max_elements = max_elements
        self.elements_left = beside_bytes(data, max_elements)

    def take_elements(self, count: int, min_bytes: int) -> None:
        """Check that the remaining bytes can contain ``count`` elements, and subtract them from the
        budget. Raises ProtocolError if they cannot, or the budget is exceeded.

        Call this before you reserve anything for the elements.
        """
        if count * min_bytes > self.end - self.position:
            raise ProtocolError(
                "count_beyond_end",
                f"{count} elements of {min_bytes} bytes or more, {self.end - self.position} left",
            )
        self.elements_left -= count
        if self.elements_left < 0:
            raise ProtocolError(
                "too_many_elements",
                f"more than {self.max_elements} elements in all arrays (max_request_elements, "
                "divided by what one counts as in this API; above 1 MiB each further KiB counts as "
                "one)",
            )

    def unsigned_varint(self) -> int:
        """Read a varint. Raises ProtocolError if it has more than 32 bits."""
        data = self.data
        position = self.position
        byte = data[position]
        if byte < 0x80:
            self.position = position + 1
            return byte
        value = byte & 0x7F
        for shift in (7, 14, 21, 28):
            position += 1
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise ProtocolError("bad_varint", "a varint of more than five bytes")
        if value > 0xFFFF_FFFF:
            raise ProtocolError("bad_varint", "a varint of more than 32 bits")
        self.position = position + 1
        return value

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes. Raises ProtocolError if there are fewer."""
        start = self.position
        stop = start + size
        if stop > self.end:
            raise ProtocolError("truncated", f"{size} bytes announced, {self.end - start} left")
        self.position = stop
        return self.data[start:stop]

    def text(self, size: int) -> str:
        """Read ``size`` bytes of text. Bytes that are not UTF-8 are replaced, as in Java.

        Raises ProtocolError if the text is too long.
        """
        if size > MAX_STRING_BYTES:
            raise ProtocolError("string_too_long", f"a string of {size} bytes")
        raw = self.take(size)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.take_elements(1 + size // INVALID_TEXT_BYTES_AN_ELEMENT, 0)
            return java_text(raw)

    def skip_tags(self) -> None:
        """Skip all tagged fields, because none is known."""
        data = self.data
        if self.position < self.end and data[self.position] == 0:
            self.position += 1
            return
        count = self.unsigned_varint()
        self.take_elements(count, 2)
        for _ in range(count):
            self.unsigned_varint()
            self.take_skipped(self.unsigned_varint())

    def take_skipped(self, size: int) -> None:
        """Skip ``size`` bytes. Raises ProtocolError if there are fewer."""
        stop = self.position + size
        if stop > self.end:
            raise ProtocolError(
                "truncated", f"{size} bytes to skip, {self.end - self.position} left"
            )
        self.position = stop


# --- single values: Input -> value ----------------------------------------------------------------

Read = Callable[[Input], Any]
"""Reads one value and advances the position."""


class _Codec(NamedTuple):
    """The function that reads a field, and the least number of bytes of the field."""

    read: Read
    min_bytes: int
    layout: str = ""
    """The format character of ``struct`` if the value has a fixed size and needs no conversion;
    else "".
    """


def _null(what: str) -> ProtocolError:
    return ProtocolError("null_not_allowed", f"{what} may not be null")


def _compact_length(source: Input) -> int:
    return source.unsigned_varint() - 1


_INT16: Final = Struct(">h").unpack_from
_INT32: Final = Struct(">i").unpack_from


def _classic_int16_length(source: Input) -> int:
    length: int = _INT16(source.data, source.position)[0]
    source.position += 2
    return length


def _classic_int32_length(source: Input) -> int:
    length: int = _INT32(source.data, source.position)[0]
    source.position += 4
    return length


def _sized(
    read_length: Callable[[Input], int],
    take: Callable[[Input, int], Any],
    *,
    nullable: bool,
    what: str,
) -> Read:
    def read(source: Input) -> Any:
        length = read_length(source)
        if length < 0:
            if nullable:
                return None
            raise _null(what)
        return take(source, length)

    return read


def _read_uuid(source: Input) -> UUID | None:
    raw = source.take(16)
    return None if raw == _NULL_UUID else UUID(bytes=raw)


_SIZED: Final[dict[str, tuple[Callable[[Input, int], Any], Callable[[Input], int], int]]] = {
    "string": (Input.text, _classic_int16_length, 2),
    "bytes": (Input.take, _classic_int32_length, 4),
    "records": (Input.take, _classic_int32_length, 4),
}
"""Type -> (the function that reads a value of a given length, the function that reads the length in
classic versions, the size of this length in bytes).
"""


def _fixed(layout: str) -> Read:
    whole = Struct(">" + layout)
    unpack, size = whole.unpack_from, whole.size

    def read(source: Input) -> Any:
        (value,) = unpack(source.data, source.position)
        source.position += size
        return value

    return read


def _primitive(kafka_type: str, what: str, *, flexible: bool, nullable: bool) -> _Codec:
    layout = LAYOUTS.get(kafka_type)
    if layout is not None:
        return _Codec(_fixed(layout), Struct(">" + layout).size, layout)
    if kafka_type == "uuid":
        return _Codec(_read_uuid, 16)
    take, classic, size = _SIZED[kafka_type]
    if flexible:
        return _Codec(_sized(_compact_length, take, nullable=nullable, what=what), 1)
    return _Codec(_sized(classic, take, nullable=nullable, what=what), size)


# --- arrays and entities --------------------------------------------------------------------------


def _array(item: _Codec, what: str, *, flexible: bool, nullable: bool) -> _Codec:
    read_item, layout = item.read, item.layout
    # Every element in Kafka's schemas has at least one byte. If a schema had empty elements, a
    # count must still require bytes from the sender.
    min_bytes = max(1, item.min_bytes)

    def read_items(source: Input, count: int) -> tuple[Any, ...]:
        source.take_elements(count, min_bytes)
        if layout:
            values = unpack_from(f">{count}{layout}", source.data, source.position)
            source.position += count * min_bytes
            return values
        return tuple([read_item(source) for _ in range(count)])

    length = _compact_length if flexible else _classic_int32_length
    return _Codec(_sized(length, read_items, nullable=nullable, what=what), 1 if flexible else 4)


def _nullable_entity(entity: _Codec) -> _Codec:
    def read(source: Input) -> Any:
        marker = source.take(1)[0]
        return entity.read(source) if marker < 0x80 else None  # KIP-893: -1 is null

    return _Codec(read, 1)


def _field_codec(field: WireField, *, flexible: bool) -> _Codec:
    if field.entity is not None:
        item = _entity_codec(field.entity)
    else:
        optional = field.nullable and not field.is_array
        item = _primitive(field.kafka_type, field.what, flexible=flexible, nullable=optional)
    if field.is_array:
        return _array(item, field.what, flexible=flexible, nullable=field.nullable)
    return _nullable_entity(item) if field.entity is not None and field.nullable else item


Step = Callable[[Input, list[Any]], None]
"""Reads one or more fields in wire order and appends their values."""


def _run_step(layouts: str) -> Step:
    """Return a step that reads adjacent fixed-size fields at once."""
    run = Struct(">" + layouts)
    unpack, size = run.unpack_from, run.size

    def step(source: Input, values: list[Any]) -> None:
        values += unpack(source.data, source.position)
        source.position += size

    return step


def _single_step(read: Read) -> Step:
    def step(source: Input, values: list[Any]) -> None:
        values.append(read(source))

    return step


def _steps(codecs: list[_Codec]) -> list[Step]:
    steps: list[Step] = []
    run = ""
    for codec in codecs:
        if codec.layout:
            run += codec.layout
            continue
        if run:
            steps.append(_run_step(run))
            run = ""
        steps.append(_single_step(codec.read))
    if run:
        steps.append(_run_step(run))
    return steps


Setter = Callable[[Any, Any], None]


def _slot_setter(entity_type: EntityClass, name: str) -> Setter:
    # This bypasses the __init__ of the frozen dataclass, which costs several times as much.
    setter: Setter = getattr(entity_type, name).__set__
    return setter


def _read_tags(known: dict[int, tuple[Read, Setter]]) -> Callable[[Input, Any], None]:
    def read_tags(source: Input, entity: Any) -> None:
        count = source.unsigned_varint()
        source.take_elements(count, 2)
        for _ in range(count):
            tag = source.unsigned_varint()
            size = source.unsigned_varint()
            start = source.position
            source.take_skipped(size)
            if tag in known:
                # If a tag is repeated, the last one counts, as in Kafka.
                read, setter = known[tag]
                source.position = start
                setter(entity, read(source))
                if source.position != start + size:
                    raise ProtocolError(
                        "bad_tag_size", f"the tag {tag} does not fill its {size} bytes"
                    )

    return read_tags


@cache
def _entity_codec(entity_type: EntityClass) -> _Codec:
    flexible: bool = entity_type.__flexible__
    plain, tagged = wire_fields(entity_type)
    codecs = [_field_codec(field, flexible=flexible) for field in plain]
    steps = _steps(codecs)
    setters = [_slot_setter(entity_type, field.name) for field in plain]
    defaults = [(_slot_setter(entity_type, field.name), field.default) for field in tagged]
    known = {
        field.tag: (
            _field_codec(field, flexible=flexible).read,
            _slot_setter(entity_type, field.name),
        )
        for field in tagged
        if field.tag is not None
    }
    read_tags = _read_tags(known) if known else None
    new = entity_type.__new__

    def read(source: Input) -> Any:
        values: list[Any] = []
        for step in steps:
            step(source, values)
        entity = new(entity_type)
        for setter, value in zip(setters, values, strict=True):
            setter(entity, value)
        for setter, value in defaults:
            setter(entity, value)
        if read_tags is not None:
            read_tags(source, entity)
        elif flexible:
            source.skip_tags()
        return entity

    return _Codec(read, sum(c.min_bytes for c in codecs) + (1 if flexible else 0))


def read_entity(entity_type: EntityClass, data: bytes, offset: int, max_elements: int) -> Any:
    """Read one entity that begins at ``offset`` and may end before ``data`` does.

    Raises only ProtocolError: if the bytes are not a valid encoding, or exceed the budget.
    """
    try:
        entity = plain_reader(entity_type)(data, offset, beside_bytes(data, max_elements))
    except NOT_PLAIN:
        entity = None
    return read_with_care(entity_type, data, offset, max_elements) if entity is None else entity


def read_with_care(entity_type: EntityClass, data: bytes, offset: int, max_elements: int) -> Any:
    """Read one entity with every check. Raises only ProtocolError."""
    source = Input(data, offset, max_elements)
    try:
        return _entity_codec(entity_type).read(source)
    except (IndexError, error):
        raise ProtocolError(
            "truncated", f"{entity_type.__name__} v{entity_type.__version__} ends early"
        ) from None
