"""ListOffsets (2): the start and the end of a partition (docs/design.md#ends).

| version | change |
| --- | --- |
| 2 | isolation level, throttle time |
| 4 | current leader epoch in the request, leader epoch in the reply |
| 6 | flexible |
| 7-9, 11 | further special timestamps, each refused below the version that brought it |
| 10 | timeout |

EARLIEST (-2, -4) is 0, and LATEST (-1) is the partition's end. There are no records in which to
look up a time, so every other timestamp is answered with -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.handlers.partitions import LEADER_EPOCH, check_partition, find_by_name
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.cluster.topics import Topics
    from groupkeeper.coordinator.core.cluster.image import TopicInfo
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

LATEST = -1
EARLIEST = frozenset({-2, -4})
"""The timestamps that ask for the earliest offset: of the log, and of the part that the leader has
on its disk."""
SPECIAL: Final = {LATEST: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""The timestamps with a special meaning, each with the first version that has it
(ReplicaManager.isListOffsetsTimestampUnsupported)."""

ISOLATION_LEVELS = frozenset({0, 1})


class FoundPartition(NamedTuple):
    """The answer for one partition: an offset or an error."""

    partition_index: int
    error_code: ErrorCode
    offset: int = -1
    leader_epoch: int = -1
    timestamp: int = -1
    """The time of the record at the offset. Always -1, because there are no records here."""


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once from the topics in memory."""
    exchange.send(render(exchange.read(services), exchange, services))


def look_up(
    topics: Topics, topic: TopicInfo | ErrorCode, wire: Any, version: int
) -> tuple[ErrorCode, int, int]:
    """Return (error, offset, leader epoch) for one partition of the request. The offset and the
    epoch are -1 if there is none.
    """
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


def render(wire: Any, exchange: Exchange, services: Services) -> bytes:
    """Return the answer in the version of the request. Unless the whole request is refused, each
    partition occurs once.
    """
    version = exchange.version
    if version >= 2 and wire.isolation_level not in ISOLATION_LEVELS:
        entries = _refused(wire, ErrorCode.UNKNOWN_SERVER_ERROR)
    elif services.denied:
        entries = _refused(wire, services.denied)
    else:
        entries = _entries(wire, version, services.topics)
    errors = (found.error_code for _, partitions in entries for found in partitions)
    exchange.error = next(filter(None, errors), ErrorCode.NONE)
    return exchange.write(
        topics=[Row(name=name, partitions=partitions) for name, partitions in entries]
    )


def _entries(wire: Any, version: int, topics: Topics) -> list[tuple[str, list[FoundPartition]]]:
    """Return the topics of the answer. Topics that the request names twice are merged. Partitions
    that it names twice are refused.
    """
    image = topics.image
    merged: dict[str, dict[int, FoundPartition]] = {}
    for asked in wire.topics:
        if not asked.partitions:
            continue
        topic = find_by_name(image, asked.name)
        rows = merged.setdefault(asked.name, {})
        for partition in asked.partitions:
            index = partition.partition_index
            if index in rows:
                rows[index] = FoundPartition(index, ErrorCode.INVALID_REQUEST)
            else:
                rows[index] = FoundPartition(index, *look_up(topics, topic, partition, version))
    return [(name, list(rows.values())) for name, rows in merged.items()]


def _refused(wire: Any, error: ErrorCode) -> list[tuple[str, list[FoundPartition]]]:
    """Return the topics of the answer, with the same error for every partition of the request.
    Kafka answers an unknown isolation level like this (ListOffsetsRequest.getErrorResponse).
    """
    return [
        (asked.name, [FoundPartition(p.partition_index, error) for p in asked.partitions])
        for asked in wire.topics
    ]
