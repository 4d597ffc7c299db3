"""The hot requests by plain struct code: Heartbeat, OffsetCommit and OffsetFetch.

They become plain tuples of the values that the core needs. A function here reads only the common
form of a message. For anything else (a null, a tag, text that is not UTF-8, an early end, a count
beyond the budget) ``protocol.reader`` reads the message again from the start and decides. So both
accept and refuse the same bytes for the same reasons. Nothing larger than the frame is ever
reserved.

Topic ids are in Kafka's printed form, 22 characters of URL-safe base64, "" for the zero id.

Long because it has three requests, their versions and their replies.
"""

from __future__ import annotations

from struct import Struct, unpack_from
from typing import Any, Final, TypeAlias

from groupkeeper.protocol.codec import read_request, uuid_to_topic_id
from groupkeeper.protocol.packing import (
    GIVE_UP,
    INT32,
    INT64,
    Odd,
    classic,
    classic_count,
    classic_or_none,
    compact,
    compact_count,
    compact_or_none,
    no_tags,
    printed_topic_id,
)
from groupkeeper.protocol.reader import FREE_BYTES, beside_bytes
from groupkeeper.protocol.versions import ApiKey

HeartbeatFields: TypeAlias = tuple[str, int, str, str | None]
"""(group id, generation, member id, instance id)."""

CommitPartition: TypeAlias = tuple[int, int, int, str | None]
"""(partition, offset, leader epoch or -1, metadata), as in coordinator/core/requests.py."""

CommitTopic: TypeAlias = tuple[str, str, list[CommitPartition]]
"""(name, topic id, partitions); one of name and id is ""."""

OffsetCommitFields: TypeAlias = tuple[str, int, str, str | None, int, list[CommitTopic]]
"""(group id, generation, member id, instance id, retention in ms or -1, topics)."""

FetchTopic: TypeAlias = tuple[str, str, list[int]]
"""(name, topic id, partitions); one of name and id is ""."""

OffsetFetchGroup: TypeAlias = tuple[str, str | None, int, list[FetchTopic] | None]
"""(group id, member id, member epoch or -1, topics; None: all)."""

OffsetFetchFields: TypeAlias = tuple[list[OffsetFetchGroup], bool]
"""(groups, require stable); one group before v8."""


# --- Who asks ---

MAX_SENDER_BYTES: Final = 512
"""Longer senders are decoded again for each request, to bound the memory of a connection."""


class LastSender:
    """The sender of the last Heartbeat or OffsetCommit of a connection.

    The next request is nearly always from the same member: its bytes are then only compared.
    """

    __slots__ = ("fields", "raw")

    def __init__(self) -> None:
        self.fields: HeartbeatFields = ("", 0, "", None)
        self.raw = b"\1\0\0\0\0\1\0"
        """The bytes of ``fields`` in a flexible version."""


def _sender(frame: bytes, start: int, last: LastSender) -> tuple[HeartbeatFields, int]:
    """Return the sender of a flexible Heartbeat or OffsetCommit, and the position after it."""
    raw = last.raw
    if frame.startswith(raw, start):
        return last.fields, start + len(raw)
    group_id, position = compact(frame, start)
    (generation_id,) = INT32(frame, position)
    member_id, position = compact(frame, position + 4)
    instance_id, position = compact_or_none(frame, position)
    fields = group_id, generation_id, member_id, instance_id
    # A slice beyond the frame is cut off. The caller's next read finds that.
    if position - start <= MAX_SENDER_BYTES and position <= len(frame):
        last.fields = fields
        last.raw = frame[start:position]
    return fields, position


# --- Heartbeat ---


def read_heartbeat(
    version: int, frame: bytes, offset: int, max_elements: int, last: LastSender | None = None
) -> HeartbeatFields:
    """Read a Heartbeat whose body begins at ``offset``. Raises only ProtocolError."""
    try:
        if version >= 4:
            fields, position = _sender(frame, offset, last or LastSender())
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


# --- OffsetCommit ---


def read_offset_commit(
    version: int, frame: bytes, offset: int, max_elements: int, last: LastSender | None = None
) -> OffsetCommitFields:
    """Read an OffsetCommit (0-10). Raises only ProtocolError."""
    try:
        small = len(frame) <= FREE_BYTES
        allowed = max_elements if small else beside_bytes(frame, max_elements)
        if version >= 8:
            return _read_commit_flexible(version, frame, offset, allowed, last or LastSender())
        return _read_commit_classic(version, frame, offset, allowed)
    except GIVE_UP:
        return _read_commit_carefully(version, frame, offset, max_elements)


_COMMIT_PARTITION: Final = Struct(">iqi2x").iter_unpack
_COMMIT_PARTITION_HEAD: Final = Struct(">iqiB").unpack_from


def _read_commit_flexible(
    version: int, frame: bytes, position: int, elements_left: int, last: LastSender
) -> OffsetCommitFields:
    (group_id, generation_id, member_id, instance_id), position = _sender(frame, position, last)
    count, position = compact_count(frame, position)
    elements_left -= count
    topics: list[CommitTopic] = []
    for _ in range(count):
        name = topic_id = ""
        if version >= 10:
            topic_id = printed_topic_id(frame[position : position + 16])
            position += 16
        else:
            name, position = compact(frame, position)
        size, position = compact_count(frame, position)
        elements_left -= size
        if elements_left < 0:
            raise Odd
        stop = position + 18 * size
        raw = frame[position:stop]
        lengths = raw[16::18]
        empty = lengths.count(1)
        if raw[17::18].count(0) == size and (empty == size or lengths.count(0) == size):
            # No partition has metadata, so each takes 18 bytes, with the length of an empty or null
            # string and no tags.
            nothing = "" if empty else None
            partitions: list[CommitPartition] = [
                (p, o, e, nothing) for p, o, e in _COMMIT_PARTITION(raw)
            ]
            position = stop
        else:
            partitions, position = _read_partitions_flexible(frame, position, size)
        topics.append((name, topic_id, partitions))
        position = no_tags(frame, position)
    no_tags(frame, position)
    if elements_left < 0:
        raise Odd
    return group_id, generation_id, member_id, instance_id, -1, topics


def _read_partitions_flexible(
    frame: bytes, position: int, count: int
) -> tuple[list[CommitPartition], int]:
    partitions: list[CommitPartition] = []
    metadata: str | None
    for _ in range(count):
        partition, offset, epoch, size = _COMMIT_PARTITION_HEAD(frame, position)
        if size > 1:
            metadata, position = compact(frame, position + 16)
        else:
            metadata = "" if size else None
            position += 17
        position = no_tags(frame, position)
        partitions.append((partition, offset, epoch, metadata))
    return partitions, position


class _ClassicCommit:
    """Layout of a classic version: a partition up to its metadata, and the fields before the
    topics.
    """

    __slots__ = ("epoch", "head", "instance", "member", "retention", "rows", "size")

    def __init__(self, layout: str, *fields: str) -> None:
        self.epoch = layout == "iqi"
        self.member = "member" in fields
        self.retention = "retention" in fields
        self.instance = "instance" in fields
        self.head = Struct(">" + layout).unpack_from
        self.rows = Struct(">" + layout + "2x").iter_unpack
        self.size = Struct(">" + layout).size


_CLASSIC_COMMITS: Final = {
    0: _ClassicCommit("iq"),
    1: _ClassicCommit("iq8x", "member"),  # the client's timestamp, which is ignored
    2: _ClassicCommit("iq", "member", "retention"),
    3: _ClassicCommit("iq", "member", "retention"),
    4: _ClassicCommit("iq", "member", "retention"),
    5: _ClassicCommit("iq", "member"),
    6: _ClassicCommit("iqi", "member"),
    7: _ClassicCommit("iqi", "member", "instance"),
}


def _read_commit_classic(
    version: int, frame: bytes, position: int, elements_left: int
) -> OffsetCommitFields:
    layout = _CLASSIC_COMMITS[version]
    generation_id, member_id, retention_ms = -1, "", -1
    instance_id: str | None = None
    group_id, position = classic(frame, position)
    if layout.member:
        (generation_id,) = INT32(frame, position)
        member_id, position = classic(frame, position + 4)
    if layout.instance:
        instance_id, position = classic_or_none(frame, position)
    if layout.retention:
        (retention_ms,) = INT64(frame, position)
        position += 8
    count, position = classic_count(frame, position)
    elements_left -= count
    topics: list[CommitTopic] = []
    for _ in range(count):
        name, position = classic(frame, position)
        size, position = classic_count(frame, position)
        elements_left -= size
        if elements_left < 0:
            raise Odd
        partitions, position = _read_partitions_classic(layout, frame, position, size)
        topics.append((name, "", partitions))
    if position > len(frame) or elements_left < 0:
        raise Odd
    return group_id, generation_id, member_id, instance_id, retention_ms, topics


def _read_partitions_classic(
    layout: _ClassicCommit, frame: bytes, position: int, count: int
) -> tuple[list[CommitPartition], int]:
    stride = layout.size + 2
    stop = position + stride * count
    raw = frame[position:stop]
    if raw[stride - 2 :: stride].count(0) == count == raw[stride - 1 :: stride].count(0):
        # No partition has metadata: each has the same size and ends with the length of an empty
        # string.
        if layout.epoch:
            return [(p, o, e, "") for p, o, e in layout.rows(raw)], stop
        return [(p, o, -1, "") for p, o in layout.rows(raw)], stop
    partitions: list[CommitPartition] = []
    for _ in range(count):
        head = layout.head(frame, position)
        metadata, position = classic_or_none(frame, position + layout.size)
        partitions.append((head[0], head[1], head[2] if layout.epoch else -1, metadata))
    return partitions, position


def _read_commit_carefully(
    version: int, frame: bytes, offset: int, max_elements: int
) -> OffsetCommitFields:
    request = read_request(ApiKey.OFFSET_COMMIT, version, frame, offset, max_elements)
    topics: list[CommitTopic] = [
        (
            "" if version >= 10 else topic.name,
            uuid_to_topic_id(topic.topic_id) if version >= 10 else "",
            [
                (
                    p.partition_index,
                    p.committed_offset,
                    p.committed_leader_epoch if version >= 6 else -1,
                    p.committed_metadata,
                )
                for p in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return (
        request.group_id,
        request.generation_id_or_member_epoch if version >= 1 else -1,
        request.member_id if version >= 1 else "",
        request.group_instance_id if version >= 7 else None,
        request.retention_time if 2 <= version <= 4 else -1,
        topics,
    )


# --- OffsetFetch ---


def read_offset_fetch(
    version: int, frame: bytes, offset: int, max_elements: int
) -> OffsetFetchFields:
    """Read an OffsetFetch (0-10). Raises only ProtocolError."""
    try:
        small = len(frame) <= FREE_BYTES
        allowed = max_elements if small else beside_bytes(frame, max_elements)
        if version >= 8:
            return _read_fetch_groups(version, frame, offset, allowed)
        if version >= 6:
            return _read_fetch_flexible(version, frame, offset, allowed)
        return _read_fetch_classic(version, frame, offset, allowed)
    except GIVE_UP:
        return _read_fetch_carefully(version, frame, offset, max_elements)


def _read_fetch_classic(
    version: int, frame: bytes, position: int, elements_left: int
) -> OffsetFetchFields:
    group_id, position = classic(frame, position)
    (count,) = INT32(frame, position)
    position += 4
    if count == -1 and version >= 2:
        return [(group_id, None, -1, None)], False
    elements_left -= count
    topics: list[FetchTopic] = []
    if count < 0:
        raise Odd
    for _ in range(count):
        name, position = classic(frame, position)
        size, position = classic_count(frame, position)
        elements_left -= size
        if elements_left < 0:
            raise Odd
        topics.append((name, "", list(unpack_from(f">{size}i", frame, position))))
        position += 4 * size
    if elements_left < 0:
        raise Odd
    return [(group_id, None, -1, topics)], False


def _read_fetch_flexible(
    version: int, frame: bytes, position: int, elements_left: int
) -> OffsetFetchFields:
    group_id, position = compact(frame, position)
    topics, position, _ = _read_fetch_topics(frame, position, elements_left, by_id=False)
    require_stable = False
    if version >= 7:
        require_stable = frame[position] != 0
        position += 1
    no_tags(frame, position)
    return [(group_id, None, -1, topics)], require_stable


def _read_fetch_groups(
    version: int, frame: bytes, position: int, elements_left: int
) -> OffsetFetchFields:
    count, position = compact_count(frame, position)
    elements_left -= count
    groups: list[OffsetFetchGroup] = []
    for _ in range(count):
        member_id, member_epoch = None, -1
        group_id, position = compact(frame, position)
        if version >= 9:
            member_id, position = compact_or_none(frame, position)
            (member_epoch,) = INT32(frame, position)
            position += 4
        topics, position, elements_left = _read_fetch_topics(
            frame, position, elements_left, by_id=version >= 10
        )
        position = no_tags(frame, position)
        groups.append((group_id, member_id, member_epoch, topics))
    require_stable = frame[position] != 0
    no_tags(frame, position + 1)
    if elements_left < 0:
        raise Odd
    return groups, require_stable


def _read_fetch_topics(
    frame: bytes, position: int, elements_left: int, *, by_id: bool
) -> tuple[list[FetchTopic] | None, int, int]:
    if frame[position] == 0:
        return None, position + 1, elements_left
    count, position = compact_count(frame, position)
    elements_left -= count
    topics: list[FetchTopic] = []
    for _ in range(count):
        name = topic_id = ""
        if by_id:
            topic_id = printed_topic_id(frame[position : position + 16])
            position += 16
        else:
            name, position = compact(frame, position)
        size, position = compact_count(frame, position)
        elements_left -= size
        if elements_left < 0:
            raise Odd
        topics.append((name, topic_id, list(unpack_from(f">{size}i", frame, position))))
        position = no_tags(frame, position + 4 * size)
    if elements_left < 0:
        raise Odd
    return topics, position, elements_left


def _read_fetch_carefully(
    version: int, frame: bytes, offset: int, max_elements: int
) -> OffsetFetchFields:
    request = read_request(ApiKey.OFFSET_FETCH, version, frame, offset, max_elements)

    def plain(topics: Any) -> list[FetchTopic] | None:
        if topics is None:
            return None
        if version >= 10:
            return [("", uuid_to_topic_id(t.topic_id), list(t.partition_indexes)) for t in topics]
        return [(t.name, "", list(t.partition_indexes)) for t in topics]

    if version < 8:
        group: OffsetFetchGroup = (request.group_id, None, -1, plain(request.topics))
        return [group], request.require_stable if version >= 7 else False
    if version == 8:
        groups: list[OffsetFetchGroup] = [
            (g.group_id, None, -1, plain(g.topics)) for g in request.groups
        ]
    else:
        groups = [
            (g.group_id, g.member_id, g.member_epoch, plain(g.topics)) for g in request.groups
        ]
    return groups, request.require_stable
