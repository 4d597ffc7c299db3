"""Random and fixed entities of kio's classes, and their bytes.

The encoder here also returns where each length is. ``plain`` converts entities of different
libraries into a form in which they can be compared.
"""

from __future__ import annotations

import io
import struct
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from groupkeeper.protocol.codec import uuid_to_topic_id
from groupkeeper.protocol.versions import APIS
from groupkeeper.protocol.writer import Row
from tests.helpers.core.examples import examples

INTEGERS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "error_code": "h"}
MILLISECONDS = {"timedelta_i32": "i", "timedelta_i64": "q", "datetime_i64": "q"}


FEW = settings(max_examples=examples(8), derandomize=True, deadline=None, database=None)
"""For tests that run once for each of a hundred versions."""


def served() -> list[tuple[int, int]]:
    """Return every API key and version that kio has a schema for, among those that we serve."""
    return [
        (int(api.key), version)
        for api in APIS
        for version in range(api.min_version, api.max_version + 1)
    ]


def served_id(served: tuple[int, int]) -> str:
    return f"key{served[0]}-v{served[1]}"


def kio_bytes(entity: Any) -> bytes:
    """Return the entity as kio writes it."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def plain(value: Any) -> Any:
    """Return an entity as dicts and lists. Durations are milliseconds, and error codes integers."""
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, IntEnum):
        return int(value)
    return value


def rows(value: Any) -> Any:
    """Return the same as our writer takes it: rows, milliseconds and integers, printed
    topic ids.
    """
    if is_dataclass(value):
        return Row(**{f.name: rows(getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, tuple):
        return [rows(item) for item in value]
    return uuid_to_topic_id(value) if isinstance(value, UUID) else plain(value)


def response_values(entity: Any) -> tuple[int, dict[str, Any]]:
    """Return the throttle time of a response and its other fields, as our writer takes them."""
    values = vars(rows(entity))
    return values.pop("throttle_time", 0), values


# --- the shape of a field -------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    name: str
    kafka_type: str | None
    entity: Any
    is_array: bool
    nullable: bool
    tag: int | None
    default: Any


def shapes(entity_type: Any) -> list[Shape]:
    hints = get_type_hints(entity_type)
    result = []
    for f in fields(entity_type):
        hint, nullable = hints[f.name], False
        if get_origin(hint) is UnionType:
            hint, nullable = next(a for a in get_args(hint) if a is not type(None)), True
        is_array = get_origin(hint) is tuple
        if is_array:
            hint = get_args(hint)[0]
        result.append(
            Shape(
                f.name,
                f.metadata.get("kafka_type"),
                hint if is_dataclass(hint) else None,
                is_array,
                nullable,
                f.metadata.get("tag"),
                f.default,
            )
        )
    return result


# --- random content -------------------------------------------------------------------------------

_TEXT = st.one_of(
    st.sampled_from(["", "orders", "é", "日本", "\U0001f600", "x" * 127, "y" * 300]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
_BYTES = st.one_of(st.binary(max_size=40), st.sampled_from([b"\0" * 127, b"\xff" * 300]))
_UUIDS = st.none() | st.integers(1, 2**128 - 1).map(lambda number: UUID(int=number))


def _integers(letter: str) -> st.SearchStrategy[int]:
    bits = struct.calcsize(letter) * 8 - 1
    return st.one_of(st.sampled_from([-1, 0, 1, 7]), st.integers(-(2**bits), 2**bits - 1))


def _primitive(kafka_type: str, nullable: bool) -> st.SearchStrategy[Any]:
    if kafka_type == "error_code":
        return st.sampled_from(list(ErrorCode))
    if kafka_type in INTEGERS:
        return _integers(INTEGERS[kafka_type])
    if kafka_type == "timedelta_i32":
        return _integers("i").map(lambda ms: timedelta(milliseconds=ms))
    if kafka_type == "timedelta_i64":
        # kio converts larger values to floats and back, and changes them. Another test reads them.
        return st.integers(-(2**40), 2**40).map(lambda ms: timedelta(milliseconds=ms))
    if kafka_type == "datetime_i64":
        return st.integers(0, 2**32).map(lambda s: datetime.fromtimestamp(s, UTC))
    if kafka_type == "uuid":
        return _UUIDS
    value = {
        "bool": st.booleans(),
        "string": _TEXT,
        "bytes": _BYTES,
        "records": _BYTES,
    }[kafka_type]
    return st.none() | value if nullable else value


def entities(entity_type: Any) -> st.SearchStrategy[Any]:
    """Return a strategy that draws valid entities of a class of kio."""
    values: dict[str, st.SearchStrategy[Any]] = {}
    for shape in shapes(entity_type):
        if shape.entity is not None:
            value = entities(shape.entity)
        else:
            assert shape.kafka_type is not None
            # kio cannot distinguish a tag that is null from an absent one.
            optional = shape.nullable and not shape.is_array and shape.tag is None
            value = _primitive(shape.kafka_type, optional)
            if shape.kafka_type == "int32" and shape.name.endswith("authorized_operations"):
                value = st.integers(0, 2**13)  # a set of bits; kafka-python hangs if it is negative
        if shape.is_array:
            value = st.lists(value, max_size=3).map(tuple)
            if shape.nullable:
                value = st.none() | value
        if shape.tag is not None and shape.default is not MISSING:
            value = st.just(shape.default) | value
        values[shape.name] = value
    return st.builds(entity_type, **values)


# --- fixed content, and where it lies -------------------------------------------------------------

_SAMPLES: dict[str, Any] = {
    "bool": True,
    "string": "text",
    "bytes": b"some bytes",
    "records": b"some records",
    "uuid": UUID(int=7),
    "timedelta_i32": timedelta(milliseconds=30_000),
    "timedelta_i64": timedelta(milliseconds=30_000),
    "datetime_i64": datetime.fromtimestamp(1_700_000_000, UTC),
}


def sample(entity_type: Any) -> Any:
    """Return an entity in which nothing is null or default, and every array holds two elements."""
    values: dict[str, Any] = {}
    for shape in shapes(entity_type):
        if shape.entity is not None:
            value = sample(shape.entity)
        elif shape.kafka_type == "error_code":
            value = ErrorCode(16)
        else:
            value = _SAMPLES.get(shape.kafka_type or "", 3)
        values[shape.name] = (value, value) if shape.is_array else value
    return entity_type(**values)


@dataclass(frozen=True)
class Mark:
    """A length, count or number of tags in encoded bytes."""

    kind: str
    """"array", "string", "bytes", "tags" or "tag_size"."""
    path: str
    start: int
    stop: int
    compact: bool
    nullable: bool = False


class Encoder:
    """Writes an entity, and records where each length is. A test compares it with kio's writer."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.marks: list[Mark] = []

    def varint(self, value: int) -> None:
        while value >= 0x80:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def mark(
        self, kind: str, path: str, value: int, layout: str, shape: Shape | None = None
    ) -> None:
        start = len(self.out)
        if layout == "varint":
            self.varint(value)
        else:
            self.out += struct.pack(">" + layout, value)
        nullable = shape is not None and shape.nullable
        self.marks.append(Mark(kind, path, start, len(self.out), layout == "varint", nullable))

    def entity(self, entity: Any, path: str) -> None:
        flexible = entity.__flexible__
        tagged = []
        for shape in shapes(type(entity)):
            if shape.tag is not None:
                if getattr(entity, shape.name) != shape.default:
                    tagged.append(shape)
            else:
                self.field(shape, getattr(entity, shape.name), flexible, f"{path}.{shape.name}")
        if not flexible:
            return
        self.mark("tags", path, len(tagged), "varint")
        for shape in sorted(tagged, key=lambda shape: shape.tag or 0):
            inner = Encoder()
            inner.field(shape, getattr(entity, shape.name), flexible, f"{path}.{shape.name}")
            self.varint(shape.tag or 0)
            self.mark("tag_size", f"{path}.{shape.name}", len(inner.out), "varint")
            base = len(self.out)
            self.out += inner.out
            self.marks += [
                Mark(m.kind, m.path, m.start + base, m.stop + base, m.compact, m.nullable)
                for m in inner.marks
            ]

    def field(self, shape: Shape, value: Any, flexible: bool, path: str) -> None:
        if not shape.is_array:
            self.value(shape, value, flexible, path)
            return
        count = -1 if value is None else len(value)
        if flexible:
            self.mark("array", path, count + 1, "varint", shape)
        else:
            self.mark("array", path, count, "i", shape)
        for index, item in enumerate(value or ()):
            self.value(shape, item, flexible, f"{path}[{index}]")

    def value(self, shape: Shape, value: Any, flexible: bool, path: str) -> None:
        kafka_type = shape.kafka_type
        if shape.entity is not None:
            self.entity(value, path)
        elif kafka_type in INTEGERS:
            self.out += struct.pack(">" + INTEGERS[kafka_type], value)
        elif kafka_type in MILLISECONDS:
            self.out += struct.pack(
                ">" + MILLISECONDS[kafka_type], -1 if value is None else plain(value)
            )
        elif kafka_type == "bool":
            self.out += struct.pack(">?", value)
        elif kafka_type == "uuid":
            self.out += bytes(16) if value is None else value.bytes
        else:
            self.sized(shape, value, flexible, path)

    def sized(self, shape: Shape, value: Any, flexible: bool, path: str) -> None:
        kind = "string" if shape.kafka_type == "string" else "bytes"
        raw = value.encode() if isinstance(value, str) else value
        size = -1 if raw is None else len(raw)
        if flexible:
            self.mark(kind, path, size + 1, "varint", shape)
        else:
            self.mark(kind, path, size, "h" if kind == "string" else "i", shape)
        self.out += raw or b""


def encode(entity: Any) -> tuple[bytes, list[Mark]]:
    """Return the bytes of an entity, and a mark for each length in them."""
    encoder = Encoder()
    encoder.entity(entity, type(entity).__name__)
    return bytes(encoder.out), encoder.marks


def replaced(data: bytes, mark: Mark, new: bytes) -> bytes:
    """Return the bytes with ``new`` in place of the bytes of the mark."""
    return data[: mark.start] + new + data[mark.stop :]
