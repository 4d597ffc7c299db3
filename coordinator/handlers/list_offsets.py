"""ListOffsets (2): where a partition begins and ends (design 1).

| version | change |
| --- | --- |
| 2 | isolation level, throttle time |
| 4 | current leader epoch in the request, leader epoch in the reply |
| 6 | flexible |
| 7-9, 11 | further special timestamps, each refused below the version that brought it |
| 10 | timeout |

EARLIEST (-2, -4) is 0, LATEST (-1) the partition's end; there are no records to look up times in,
so the answer to any other is -1.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from coordinator.core.errors import ErrorCode
from coordinator.handlers.packing import begin, finish, wire_count, wire_string
from coordinator.handlers.partitions import LEADER_EPOCH, check_partition, find_by_name
from coordinator.handlers.reading import read

if TYPE_CHECKING:
    from coordinator.core.topic_image import TopicInfo
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services, TopicSource

FIRST_FLEXIBLE = 6

LATEST = -1
EARLIEST = frozenset({-2, -4})
"""Of the log, and of what the leader holds itself."""
SPECIAL: Final = {LATEST: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""The first version of each time below zero (ReplicaManager.isListOffsetsTimestampUnsupported)."""

ISOLATION_LEVELS = frozenset({0, 1})

Row: TypeAlias = tuple[int, ErrorCode, int, int]
"""Partition, error, offset, leader epoch."""

_V1 = struct.Struct(">ihqq")
_V4 = struct.Struct(">ihqqi")
_FLEXIBLE = struct.Struct(">ihqqix")
_THROTTLE = bytes(4)


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once."""
    exchange.send(render(read(exchange, services), exchange, services.topics))


def look_up(
    topics: TopicSource, topic: TopicInfo | ErrorCode, wire: Any, version: int
) -> tuple[ErrorCode, int, int]:
    """Find (error, offset, leader epoch) for one partition of the request."""
    if wire.timestamp < 0 and version < SPECIAL.get(wire.timestamp, version + 1):
        return ErrorCode.UNSUPPORTED_VERSION, -1, -1
    error = check_partition(
        topic, wire.partition_index, wire.current_leader_epoch if version >= 4 else -1
    )
    if error is not ErrorCode.NONE or isinstance(topic, ErrorCode):
        return error, -1, -1
    if wire.timestamp == LATEST:
        return error, topics.end_offset(topic.topic_id, wire.partition_index), LEADER_EPOCH
    if wire.timestamp in EARLIEST:
        return error, 0, LEADER_EPOCH
    return error, -1, -1


def render(wire: Any, exchange: Exchange, topics: TopicSource) -> bytes:
    """Render for the version asked, each partition once."""
    version = exchange.version
    flexible = version >= FIRST_FLEXIBLE
    if version >= 2 and wire.isolation_level not in ISOLATION_LEVELS:
        entries = _stumbled(wire)
    else:
        entries = _entries(wire, version, topics)
    rows = (row for _, rows in entries for row in rows)
    exchange.error = next((error for _, error, _, _ in rows if error), ErrorCode.NONE)
    out = begin(exchange.correlation_id, flexible)
    if version >= 2:
        out += _THROTTLE
    out += wire_count(len(entries), flexible)
    for name, rows_of_topic in entries:
        out += wire_string(name, flexible)
        out += wire_count(len(rows_of_topic), flexible)
        for row in rows_of_topic:
            out += _pack_row(version, *row)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    return finish(out)


def _entries(wire: Any, version: int, topics: TopicSource) -> list[tuple[str, list[Row]]]:
    """Merge the topics of the request; a partition that comes twice is refused."""
    image = topics.image
    merged: dict[str, dict[int, Row]] = {}
    for asked in wire.topics:
        if not asked.partitions:
            continue
        topic = find_by_name(image, asked.name)
        rows = merged.setdefault(asked.name, {})
        for partition in asked.partitions:
            index = partition.partition_index
            if index in rows:
                rows[index] = (index, ErrorCode.INVALID_REQUEST, -1, -1)
            else:
                rows[index] = (index, *look_up(topics, topic, partition, version))
    return [(name, list(rows.values())) for name, rows in merged.items()]


def _stumbled(wire: Any) -> list[tuple[str, list[Row]]]:
    """Answer an isolation level that there is not as Kafka does, all as it was asked for
    (ListOffsetsRequest.getErrorResponse).
    """
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    return [
        (asked.name, [(p.partition_index, error, -1, -1) for p in asked.partitions])
        for asked in wire.topics
    ]


def _pack_row(version: int, index: int, error: ErrorCode, offset: int, epoch: int) -> bytes:
    """Pack one partition; the timestamp of a special offset is always -1."""
    if version >= FIRST_FLEXIBLE:
        return _FLEXIBLE.pack(index, error, -1, offset, epoch)
    if version >= 4:
        return _V4.pack(index, error, -1, offset, epoch)
    return _V1.pack(index, error, -1, offset)
