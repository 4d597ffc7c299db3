"""ConsumerGroupHeartbeat by plain struct code, if it changes nothing. Nearly all of them do not."""

from __future__ import annotations

from struct import Struct
from typing import Final

from groupkeeper.protocol.last_requests import Sender
from groupkeeper.protocol.packing import (
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
"""By version: the end of a request without rack, rebalance timeout, names, pattern (version 1),
assignor, owned partitions and tags.
"""


def read_steady_heartbeat(version: int, frame: bytes, offset: int) -> Sender | None:
    """Return who sends a heartbeat without a change, by a member that has an epoch. None for any
    other, and for any bytes that are not plain.
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


_HEAD: Final = Struct(">iixihx").pack
"""Length, correlation id, (no tags), throttle time, error, (no message)."""
_HEAD_BYTES: Final = 12
"""Of the head, those that its length counts."""
_END: Final = Struct(">iibx").pack
"""Member epoch, heartbeat interval, no assignment (-1), (no tags)."""
_END_BYTES: Final = 10
_NO_MEMBER: Final = b"\0"
_NO_ASSIGNMENT: Final = -1


def pack_consumer_group_heartbeat(
    correlation_id: int,
    throttle_time_ms: int,
    error_code: int,
    member_id: str | None,
    member_epoch: int,
    heartbeat_interval_ms: int,
) -> bytes:
    """Return the frame of a reply without a message and an assignment."""
    member = _NO_MEMBER if member_id is None else compact_string(member_id)
    size = _HEAD_BYTES + len(member) + _END_BYTES
    return (
        _HEAD(size, correlation_id, throttle_time_ms, error_code)
        + member
        + _END(member_epoch, heartbeat_interval_ms, _NO_ASSIGNMENT)
    )
