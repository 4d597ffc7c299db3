"""Reads the sender of a Heartbeat, and packs its reply, by plain struct code."""

from __future__ import annotations

from struct import Struct
from typing import Final

from groupkeeper.protocol.codec import read_request
from groupkeeper.protocol.last_requests import LastRequests, Sender
from groupkeeper.protocol.packing import (
    GIVE_UP,
    INT32,
    classic,
    classic_or_none,
    read_sender,
)
from groupkeeper.protocol.versions import ApiKey


def read_heartbeat(
    version: int, frame: bytes, offset: int, max_elements: int, last: LastRequests | None = None
) -> Sender:
    """Read a Heartbeat whose body begins at ``offset``. Raises only ProtocolError."""
    try:
        if version >= 4:
            fields, position = read_sender(frame, offset, last or LastRequests())
            if frame[position] == 0:
                return fields
        else:
            group_id, position = classic(frame, offset)
            (generation_id,) = INT32(frame, position)
            member_id, position = classic(frame, position + 4)
            if version < 3:
                return group_id, generation_id, member_id, None
            instance_id, position = classic_or_none(frame, position)
            if position <= len(frame):
                return group_id, generation_id, member_id, instance_id
    except GIVE_UP:
        pass
    request = read_request(ApiKey.HEARTBEAT, version, frame, offset, max_elements)
    instance = request.group_instance_id if version >= 3 else None
    return request.group_id, request.generation_id, request.member_id, instance


_HEARTBEAT_V0: Final = Struct(">iih").pack
_HEARTBEAT_V1: Final = Struct(">iiih").pack
_HEARTBEAT_V4: Final = Struct(">iixihx").pack
"""Version 4 has the length, the correlation id, no tags, the throttle time, the error, and no tags.
Version 1 has no tags, and version 0 no throttle time either.
"""


def pack_heartbeat(
    version: int, correlation_id: int, throttle_time_ms: int, error_code: int
) -> bytes:
    """Return the frame of a Heartbeat reply."""
    if version >= 4:
        return _HEARTBEAT_V4(12, correlation_id, throttle_time_ms, error_code)
    if version >= 1:
        return _HEARTBEAT_V1(10, correlation_id, throttle_time_ms, error_code)
    return _HEARTBEAT_V0(6, correlation_id, error_code)
