"""Requests and responses of every served version, as kio's classes.

Requests are read by ``protocol.reader`` and responses written by ``protocol.writer``; kio has the
classes alone. Its modules are imported when an API and version is first used.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from functools import cache
from typing import Any, Final
from uuid import UUID

from kio.index import load_request_schema, load_response_schema

from groupkeeper.protocol.fields import EntityClass
from groupkeeper.protocol.headers import has_flexible_response_header, response_header
from groupkeeper.protocol.reader import read_entity
from groupkeeper.protocol.versions import ApiKey
from groupkeeper.protocol.writer import WriteFrame, element_class, entities_writer, frame_writer

_SAME_LAYOUT: Final = {
    (int(ApiKey.OFFSET_COMMIT), 0): 2,
    (int(ApiKey.OFFSET_COMMIT), 1): 2,
    (int(ApiKey.OFFSET_FETCH), 0): 1,
}
"""Responses that Kafka 4 dropped, and the later version with the same bytes."""


@cache
def request_class(api_key: int, version: int) -> EntityClass:
    """Return kio's class of a request; OffsetFetch v0 is v1, which has the same bytes
    (docs/spec/wire.md#old-versions).
    """
    if api_key == ApiKey.OFFSET_COMMIT and version < 2:
        # Late: aiokafka's codecs cost a start 40 ms, and hardly any client speaks these versions.
        from groupkeeper.protocol.dropped_versions import OFFSET_COMMIT_REQUESTS

        return OFFSET_COMMIT_REQUESTS[version]
    if (api_key, version) == (ApiKey.OFFSET_FETCH, 0):
        version = 1
    return load_request_schema(api_key, version)


@cache
def response_class(api_key: int, version: int) -> EntityClass:
    """Return kio's class of a response."""
    return load_response_schema(api_key, _SAME_LAYOUT.get((api_key, version), version))


def read_request(api_key: int, version: int, frame: bytes, offset: int, max_elements: int) -> Any:
    """Read the body of a request that begins at ``offset``; milliseconds are plain integers.

    Raises ProtocolError, and nothing else, whatever the bytes are.
    """
    return read_entity(request_class(api_key, version), frame, offset, max_elements)


def write_response(
    api_key: int, version: int, correlation_id: int, throttle_time_ms: int, values: dict[str, Any]
) -> bytes:
    """Return the whole frame of a response: length, response header, body.

    ``values`` has the fields by name, and belongs to this call. A value for a field that the
    version lacks is dropped, so one call states a response for all versions. A field that the
    version needs and did not get is a KeyError: a bug of ours.
    """
    values["throttle_time"] = throttle_time_ms
    return response_writer(api_key, version)(correlation_id, values)


@cache
def response_writer(api_key: int, version: int) -> WriteFrame:
    """Return the function that makes the frames of a response."""
    head = response_header(flexible=has_flexible_response_header(api_key, version))
    return frame_writer(response_class(api_key, version), head)


def write_elements(api_key: int, version: int, path: str, items: Iterable[Any]) -> bytes:
    """Return elements of a nested array of a response, such as ``topics.partitions``.

    ``protocol.writer.Written`` makes them a value for the array.
    """
    out = bytearray()
    entities_writer(element_class(response_class(api_key, version), path))(out, items)
    return bytes(out)


def uuid_to_topic_id(uuid: UUID | None) -> str:
    """Turn kio's form of a topic id into Kafka's printed form; "" for the zero id."""
    return "" if uuid is None else urlsafe_b64encode(uuid.bytes)[:22].decode()
