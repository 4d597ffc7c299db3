"""Reads a ConsumerGroupHeartbeat that states nothing new, and packs a reply without an assignment.

Most heartbeats and replies are of these kinds. Both are done by plain struct code.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from groupkeeper.protocol.last_requests import Sender
from groupkeeper.protocol.packing import (
    FLEXIBLE_HEAD,
    FLEXIBLE_HEAD_BYTES,
    GIVE_UP,
    INT32,
    compact,
    compact_or_none,
    compact_string,
)

_NOTHING_NEW: Final = (
    b"\0\xff\xff\xff\xff\0\0\0\0",
    b"\0\xff\xff\xff\xff\0\0\0\0\0",
)
"""Version -> the end of a request that states nothing new. It has no rack, rebalance timeout,
names, pattern (version 1), assignor, owned partitions or tags.
"""


def read_steady_heartbeat(version: int, frame: bytes, offset: int) -> Sender | None:
    """Return the sender of a heartbeat that states nothing new.

    Return None for any other heartbeat, for a member that joins or leaves, and for bytes that do
    not have the common form.
    """
    try:
        group_id, position = compact(frame, offset)
        member_id, position = compact(frame, position)
        (member_epoch,) = INT32(frame, position)
        instance_id, position = compact_or_none(frame, position + 4)
    except GIVE_UP:
        return None
    if member_epoch > 0 and frame.startswith(_NOTHING_NEW[version], position):
        return group_id, member_epoch, member_id, instance_id
    return None


_ERROR: Final = Struct(">hx").pack
"""Packs the error code, and a null message."""
_END: Final = Struct(">iibx").pack
"""Packs the member epoch, the heartbeat interval, -1 for no assignment, and no tags."""
_NO_MEMBER: Final = b"\0"
_NO_ASSIGNMENT: Final = -1


def consumer_group_heartbeat_body(
    error_code: int, member_id: str | None, member_epoch: int, heartbeat_interval_ms: int
) -> bytes:
    """Return the end of a reply, from the error code on. It has no message and no assignment."""
    member = _NO_MEMBER if member_id is None else compact_string(member_id)
    end = _END(member_epoch, heartbeat_interval_ms, _NO_ASSIGNMENT)
    return _ERROR(error_code) + member + end


def pack_consumer_group_heartbeat(correlation_id: int, throttle_time_ms: int, body: bytes) -> bytes:
    """Return the frame of a reply. ``body`` is what ``consumer_group_heartbeat_body`` returned."""
    return FLEXIBLE_HEAD(len(body) + FLEXIBLE_HEAD_BYTES, correlation_id, throttle_time_ms) + body
