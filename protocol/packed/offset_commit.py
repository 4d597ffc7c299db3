"""Reads an OffsetCommit into plain tuples, and packs its reply, by plain struct code.

A ``CommitShape`` reads a commit faster if it differs from the last one only in offsets and epochs.

This file is long because the shape, the request and the reply share the layouts of all versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final, TypeAlias

from groupkeeper.protocol.codec import read_request, uuid_to_topic_id
from groupkeeper.protocol.last_requests import MAX_REPEATED_BYTES, LastRequests, Sender
from groupkeeper.protocol.packing import (
    FLEXIBLE_HEAD,
    FLEXIBLE_HEAD_BYTES,
    GIVE_UP,
    INT32,
    INT64,
    NO_TAGS,
    PACK_INT32,
    Odd,
    classic,
    classic_count,
    classic_or_none,
    classic_string,
    compact,
    compact_count,
    compact_string,
    framed,
    no_tags,
    printed_topic_id,
    raw_topic_id,
    read_sender,
    varint,
)
from groupkeeper.protocol.reader import FREE_BYTES, beside_bytes
from groupkeeper.protocol.versions import ApiKey

CommitPartition: TypeAlias = tuple[int, int, int, str | None]
"""(partition, offset, leader epoch or -1, metadata), as in coordinator/core/requests/offsets.py."""

CommitTopic: TypeAlias = tuple[str, str, list[CommitPartition]]
"""(name, topic id, partitions); one of name and id is ""."""

_AnyRow: TypeAlias = tuple[Any, Any, Any, Any]
"""A CommitPartition, for code that only passes its numbers on. With ``int`` instead of Any, mypyc
would unpack and pack each number again.
"""

OffsetCommitFields: TypeAlias = tuple[str, int, str, str | None, int, list[CommitTopic]]
"""(group id, generation or member epoch, member id, instance id, retention in ms or -1, topics)."""


# --- The request ----------------------------------------------------------------------------------


def read_offset_commit(
    version: int, frame: bytes, offset: int, max_elements: int, last: LastRequests | None = None
) -> OffsetCommitFields:
    """Read an OffsetCommit (0-10) whose body begins at ``offset``. ``last`` remembers its sender
    and shape for the next commit of the connection. Raises only ProtocolError.
    """
    if last is not None:
        shape: CommitShape | None = last.commit
        last.commit = None
        if shape is not None and shape.version == version:
            again = shape.read(frame, offset)
            if again is not None:
                last.commit = shape
                return again
    try:
        small = len(frame) <= FREE_BYTES
        allowed = max_elements if small else beside_bytes(frame, max_elements)
        if version >= 8:
            return _read_commit_flexible(version, frame, offset, allowed, last or LastRequests())
        return _read_commit_classic(version, frame, offset, allowed)
    except GIVE_UP:
        return _read_commit_carefully(version, frame, offset, max_elements)


_COMMIT_PARTITION: Final = Struct(">iqi2x").iter_unpack
_COMMIT_PARTITION_HEAD: Final = Struct(">iqiB").unpack_from


def _read_commit_flexible(
    version: int, frame: bytes, position: int, elements_left: int, last: LastRequests
) -> OffsetCommitFields:
    start = position
    sender, position = read_sender(frame, position, last)
    group_id, generation_id, member_id, instance_id = sender
    count, position = compact_count(frame, position)
    elements_left -= count
    topics: list[CommitTopic] = []
    shape: CommitShape | None = None
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
            # If no partition has metadata, each takes 18 bytes, with the length of an empty or null
            # string and no tags.
            nothing = "" if empty else None
            partitions: list[_AnyRow] = _plain_rows(raw, nothing)
            if count == 1 and len(frame) == stop + 2 and 0 < size <= MAX_SHAPE_ROWS:
                topic = name, topic_id, partitions
                shape = CommitShape(version, sender, topic, frame[start:position], raw)
            position = stop
        else:
            partitions, position = _read_partitions_flexible(frame, position, size)
        topics.append((name, topic_id, partitions))
        position = no_tags(frame, position)
    no_tags(frame, position)
    if elements_left < 0:
        raise Odd
    if shape is not None and len(frame) - start <= MAX_REPEATED_BYTES + 18 * shape.rows:
        # Only here is it known that the request has no tags at its end. A shape has none.
        last.commit = shape
    return group_id, generation_id, member_id, instance_id, -1, topics


def _plain_rows(raw: bytes, metadata: str | None) -> list[_AnyRow]:
    rows: Iterable[tuple[Any, Any, Any]] = _COMMIT_PARTITION(raw)
    return [(partition, offset, epoch, metadata) for partition, offset, epoch in rows]


class CommitShape:
    """An OffsetCommit of one topic (8-10) without its offsets and epochs.

    The next commit of a connection nearly always has the same shape: a member commits the
    partitions that it owns. Then only the offsets and epochs are read, and all other bytes are
    compared. All accepted commits of a shape have the same reply body.
    """

    __slots__ = (
        "_accepted",
        "_end",
        "_head",
        "_name",
        "_nothing",
        "_numbers",
        "_sender",
        "_topic_id",
        "rows",
        "version",
    )

    def __init__(
        self, version: int, sender: Sender, topic: CommitTopic, head: bytes, rows: bytes
    ) -> None:
        """``head`` has the bytes of the body before the partitions, and ``rows`` has the
        partitions.
        """
        self.version = version
        self.rows = len(topic[2])
        self._sender = sender
        self._name, self._topic_id, _ = topic
        self._head = head
        self._numbers: tuple[Any, ...] = tuple([row[0] for row in topic[2]])
        self._nothing = topic[2][0][3]
        self._end = _EMPTY_END if self._nothing == "" else _NULL_END
        self._accepted: bytes | None = None

    def read(self, frame: bytes, offset: int) -> OffsetCommitFields | None:
        """Read a commit of the same version. Return None if it has another shape."""
        rows_at = offset + len(self._head)
        rows = frame[rows_at:-2]
        if (
            len(rows) != 18 * self.rows
            or frame[offset:rows_at] != self._head
            or frame[-2:] != _NO_TAGS_TWICE
        ):
            return None
        numbers, nothing = self._numbers, self._nothing
        partitions: list[_AnyRow] = []
        ended: Iterable[_AnyRow] = _ENDED_ROWS(rows)
        for at, (partition, committed, epoch, row_end) in enumerate(ended):
            number: int = partition  # mypyc compares ints faster than Any
            expected: int = numbers[at]
            end: int = row_end
            if number != expected or end != self._end:
                return None
            partitions.append((partition, committed, epoch, nothing))
        group_id, generation_id, member_id, instance_id = self._sender
        topics = [(self._name, self._topic_id, partitions)]
        return group_id, generation_id, member_id, instance_id, -1, topics

    def pack(self, correlation_id: int, throttle_time_ms: int, error_code: int) -> bytes:
        """Return the frame of the reply that has this error for all partitions of a commit of this
        shape.
        """
        if error_code:
            body = self._pack_body(error_code)
        else:
            accepted = self._accepted
            if accepted is None:
                accepted = self._accepted = self._pack_body(0)
            body = accepted
        return (
            FLEXIBLE_HEAD(len(body) + FLEXIBLE_HEAD_BYTES, correlation_id, throttle_time_ms) + body
        )

    def _pack_body(self, error_code: int) -> bytes:
        # The shape has the numbers of the partitions. So a commit that waits for the store need
        # not keep its own partitions.
        rows: list[_AnyRow] = [(number, 0, 0, None) for number in self._numbers]
        topics: list[CommitTopic] = [(self._name, self._topic_id, rows)]
        return _pack_error(self.version, topics, error_code)


MAX_SHAPE_ROWS: Final = 32
"""The largest number of partitions of a shape, to bound the memory of a connection."""

_NO_TAGS_TWICE: Final = NO_TAGS + NO_TAGS
_ENDED_ROWS: Final = Struct(">iqiH").iter_unpack
_EMPTY_END: Final = 0x0100
_NULL_END: Final = 0x0000
"""The last two bytes of a partition without metadata and tags: the length of the metadata, which
counts one more byte and is 0 for null, and the number of tags.
"""


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
    """The layout of a classic version: ``layout`` of a partition up to its metadata, and the
    optional fields before the topics.
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
        # If no partition has metadata, each has the same size and ends with the length of an empty
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


# --- The reply ------------------------------------------------------------------------------------

_COMMIT_ROW: Final = Struct(">ih").pack
_COMMIT_ROW_FLEXIBLE: Final = Struct(">ihx").pack


def pack_offset_commit(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    topics: Iterable[CommitTopic],
    error_code: int,
) -> bytes:
    """Return the frame of an OffsetCommit reply with one error for every partition."""
    body = _pack_error(version, topics, error_code)
    return _framed(version, correlation_id, throttle_time_ms, body)


def pack_offset_commit_results(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    topics: Iterable[tuple[str, str, Sequence[tuple[int, int]]]],
) -> bytes:
    """Return the frame of an OffsetCommit reply from (name, topic id, [(partition, error)])."""
    row = _COMMIT_ROW if version < 8 else _COMMIT_ROW_FLEXIBLE
    body = _pack_topics(
        version,
        [
            (name, topic_id, [row(partition, error) for partition, error in partitions])
            for name, topic_id, partitions in topics
        ],
    )
    return _framed(version, correlation_id, throttle_time_ms, body)


def _pack_error(version: int, topics: Iterable[CommitTopic], error_code: int) -> bytes:
    row = _COMMIT_ROW if version < 8 else _COMMIT_ROW_FLEXIBLE
    return _pack_topics(
        version,
        [
            (name, topic_id, [row(p[0], error_code) for p in partitions])
            for name, topic_id, partitions in topics
        ],
    )


def _pack_topics(version: int, topics: list[tuple[str, str, list[bytes]]]) -> bytes:
    """Pack the body of a reply from (name, topic id, packed partitions)."""
    if version < 8:
        pieces = [PACK_INT32(len(topics))]
        for name, _, rows in topics:
            pieces += (classic_string(name), PACK_INT32(len(rows)), *rows)
        return b"".join(pieces)
    pieces = [varint(len(topics) + 1)]
    for name, topic_id, rows in topics:
        pieces += (
            raw_topic_id(topic_id) if version >= 10 else compact_string(name),
            varint(len(rows) + 1),
            *rows,
            NO_TAGS,
        )
    pieces.append(NO_TAGS)
    return b"".join(pieces)


def _framed(version: int, correlation_id: int, throttle_time_ms: int, body: bytes) -> bytes:
    flexible, throttle = version >= 8, version >= 3
    return framed(correlation_id, throttle_time_ms, body, flexible=flexible, throttle=throttle)
