"""Messages that kio writes from plain values. Tests compare them with those of our own writer."""

from __future__ import annotations

import io
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from types import UnionType
from typing import Any, Final, get_args, get_origin
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from groupkeeper.protocol.codec import response_class
from groupkeeper.protocol.fields import EntityClass
from groupkeeper.protocol.frames import PREFIX_BYTES, has_flexible_response_header, response_header


def write_response(api_key: int, version: int, correlation_id: int, entity: Any) -> bytes:
    """Return the whole frame of a response: length, response header, body."""
    head = response_header(flexible=has_flexible_response_header(api_key, version))
    buffer = io.BytesIO()
    buffer.write(head.pack(0, correlation_id))
    entity_writer(type(entity))(buffer, entity)
    frame = buffer.getbuffer()
    frame[:PREFIX_BYTES] = (len(frame) - PREFIX_BYTES).to_bytes(PREFIX_BYTES, "big")
    return bytes(frame)


def _error_code(value: int) -> ErrorCode:
    return ErrorCode(int(value))


def _duration(value: int | timedelta) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(milliseconds=value)


def _instant(value: int | datetime | None) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    return None if value < 0 else datetime.fromtimestamp(value / 1000, UTC)


def topic_id_to_uuid(topic_id: str) -> UUID | None:
    """Return a topic id in kio's form from Kafka's printed form; None for "", the zero id."""
    return UUID(bytes=urlsafe_b64decode(topic_id + "==")) if topic_id else None


def _uuid(value: str | UUID | None) -> UUID | None:
    return topic_id_to_uuid(value) if isinstance(value, str) else value


_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "error_code": _error_code,
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
    "datetime_i64": _instant,
    "uuid": _uuid,
}


def _entity_conversion(entity_type: EntityClass) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        return build(entity_type, **value) if isinstance(value, Mapping) else value

    return convert


def _tuple_conversion(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    def convert_all(values: Any) -> Any:
        if values is None:
            return None
        return tuple(values) if convert is None else tuple([convert(value) for value in values])

    return convert_all


def _conversion(annotation: Any, kafka_type: str | None) -> Callable[[Any], Any] | None:
    if get_origin(annotation) is UnionType:
        annotation = next(a for a in get_args(annotation) if a is not type(None))
    if get_origin(annotation) is tuple:
        return _tuple_conversion(_conversion(get_args(annotation)[0], kafka_type))
    if is_dataclass(annotation):
        return _entity_conversion(annotation)
    return None if kafka_type is None else _CONVERSIONS.get(kafka_type)


@cache
def _conversions(entity_type: EntityClass) -> dict[str, Callable[[Any], Any] | None]:
    return {f.name: _conversion(f.type, f.metadata.get("kafka_type")) for f in fields(entity_type)}


def build(entity_type: EntityClass, **values: Any) -> Any:
    """Return an entity from plain values. Values of fields that this version lacks are dropped.

    Error codes and milliseconds may be integers. Topic ids may be in Kafka's printed form, nested
    entities mappings, and arrays any iterables. ``throttle_time`` is 0 by default. Raises TypeError
    if a field of the version is missing, which is a bug of ours.
    """
    conversions = _conversions(entity_type)
    known: dict[str, Any] = {}
    if "throttle_time" in conversions:
        known["throttle_time"] = timedelta(0)
    for name, value in values.items():
        if name in conversions:
            convert = conversions[name]
            known[name] = value if convert is None else convert(value)
    return entity_type(**known)


def respond(api_key: int, version: int, correlation_id: int, **values: Any) -> bytes:
    """Return the frame of a response from plain values."""
    return write_response(
        api_key, version, correlation_id, build(response_class(api_key, version), **values)
    )
