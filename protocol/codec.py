"""Requests and responses of every served version, as kio's classes.

``protocol.reader`` reads requests and ``protocol.writer`` writes responses. We use only kio's
classes here, not its own readers and writers. Its modules are imported when an API and version is
first used.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from functools import cache
from typing import Any, Final
from uuid import UUID

from kio.index import load_request_schema, load_response_schema

from groupkeeper.protocol.fields import EntityClass
from groupkeeper.protocol.frames import has_flexible_response_header, response_header
from groupkeeper.protocol.reader import read_entity
from groupkeeper.protocol.versions import ApiKey
from groupkeeper.protocol.writer import WriteFrame, element_class, entities_writer, frame_writer

_SAME_LAYOUT: Final = {
    (int(ApiKey.OFFSET_COMMIT), 0): 2,
    (int(ApiKey.OFFSET_COMMIT), 1): 2,
    (int(ApiKey.OFFSET_FETCH), 0): 1,
}
"""(API key, version) of a response that Kafka 4 removed -> the later version with the same bytes.
"""


@cache
def request_class(api_key: int, version: int) -> EntityClass:
    """Return kio's class of a request.

    OffsetFetch v0 has the class of v1, whose bytes are the same (docs/spec/wire.md#old-versions).
    """
    if api_key == ApiKey.OFFSET_COMMIT and version < 2:
        # A late import: aiokafka's codecs take 40 ms to load, and few clients use these versions.
        from groupkeeper.protocol.dropped_versions import OFFSET_COMMIT_REQUESTS

        return OFFSET_COMMIT_REQUESTS[version]
    if (api_key, version) == (ApiKey.OFFSET_FETCH, 0):
        version = 1
    return load_request_schema(api_key, version)


@cache
def response_class(api_key: int, version: int) -> EntityClass:
    """Return the class in which kio describes the response of an API in this version."""
    return load_response_schema(api_key, _SAME_LAYOUT.get((api_key, version), version))


def read_request(api_key: int, version: int, frame: bytes, offset: int, max_elements: int) -> Any:
    """Return the body of a request as an entity of kio. The body begins at ``offset`` in the frame.

    Durations and times are plain integers of milliseconds. All arrays together have at most
    ``max_elements`` elements. Raises only ProtocolError, for any bytes.
    """
    return read_entity(request_class(api_key, version), frame, offset, max_elements)


def write_response(
    api_key: int, version: int, correlation_id: int, throttle_time_ms: int, values: dict[str, Any]
) -> bytes:
    """Return the whole frame of a response: length, response header, body.

    ``values`` has the fields by name, and this call may change it. Values of fields that the
    version lacks are ignored, so one call serves all versions. Raises KeyError if an untagged field
    of the version is missing, which is a bug of ours.
    """
    values["throttle_time"] = throttle_time_ms
    return response_writer(api_key, version)(correlation_id, values)


@cache
def response_writer(api_key: int, version: int) -> WriteFrame:
    """Return the function that writes the frames of a response."""
    head = response_header(flexible=has_flexible_response_header(api_key, version))
    return frame_writer(response_class(api_key, version), head)


def write_elements(api_key: int, version: int, path: str, items: Iterable[Any]) -> bytes:
    """Return encoded elements of a nested array of a response, such as ``topics.partitions``.

    ``protocol.writer.Written`` turns them into a value for the array.
    """
    out = bytearray()
    entities_writer(element_class(response_class(api_key, version), path))(out, items)
    return bytes(out)


def uuid_to_topic_id(uuid: UUID | None) -> str:
    """Return a topic id in Kafka's printed form. The zero id is None in kio, and "" here."""
    return "" if uuid is None else urlsafe_b64encode(uuid.bytes)[:22].decode()
