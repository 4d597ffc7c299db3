"""Reads an OffsetFetch into plain tuples, and packs its reply, by plain struct code.

A large reply is packed in pieces, so that one piece occupies the loop only for a short time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from struct import Struct, unpack_from
from typing import Any, Final, TypeAlias

from groupkeeper.protocol.codec import read_request, uuid_to_topic_id
from groupkeeper.protocol.packing import (
    GIVE_UP,
    INT32,
    NO_TAGS,
    PACK_INT16,
    PACK_INT32,
    Odd,
    classic,
    classic_count,
    classic_string,
    compact,
    compact_count,
    compact_or_none,
    compact_string,
    framed_large,
    framed_pieces,
    no_tags,
    printed_topic_id,
    raw_topic_id,
    varint,
)
from groupkeeper.protocol.reader import FREE_BYTES, beside_bytes
from groupkeeper.protocol.versions import ApiKey

FetchTopic: TypeAlias = tuple[str, str, list[int]]
"""(name, topic id, partitions); one of name and id is ""."""

OffsetFetchGroup: TypeAlias = tuple[str, str | None, int, list[FetchTopic] | None]
"""(group id, member id, member epoch or -1, topics). None instead of topics means all topics."""

OffsetFetchFields: TypeAlias = tuple[list[OffsetFetchGroup], bool]
"""(groups, require stable). Versions before 8 have exactly one group."""

FetchedPartition: TypeAlias = tuple[int, int, int, str, int]
"""(partition, offset, leader epoch, metadata, error)."""

FetchedTopic: TypeAlias = tuple[str, str, list[FetchedPartition]]
"""(name, topic id, partitions)."""


# --- The request ----------------------------------------------------------------------------------


def read_offset_fetch(
    version: int, frame: bytes, offset: int, max_elements: int
) -> OffsetFetchFields:
    """Read an OffsetFetch (0-10) whose body begins at ``offset``. Raises only ProtocolError."""
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


# --- The reply ------------------------------------------------------------------------------------


def pack_offset_fetch(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    topics: Sequence[FetchedTopic],
    error_code: int,
) -> bytes:
    """Return the frame of an OffsetFetch reply v0-7. Versions 0 and 1 have no ``error_code``."""
    assert version < 8, version
    if version >= 6:
        pieces = _flexible_fetched(topics, by_id=False)
        pieces += (PACK_INT16(error_code), NO_TAGS)
        return framed_pieces(correlation_id, throttle_time_ms, pieces, flexible=True, throttle=True)
    pieces = [PACK_INT32(len(topics))]
    for name, _, partitions in topics:
        pieces += (classic_string(name), PACK_INT32(len(partitions)))
        pieces += _classic_partitions(partitions, with_epoch=version >= 5)
    if version >= 2:
        pieces.append(PACK_INT16(error_code))
    return framed_pieces(
        correlation_id, throttle_time_ms, pieces, flexible=False, throttle=version >= 3
    )


def pack_fetched_group(
    version: int, group_id: str, topics: Sequence[FetchedTopic], error_code: int
) -> list[bytes]:
    """Return the bytes of one group in an OffsetFetch reply v8-10, in pieces."""
    assert version >= 8, version
    return [
        compact_string(group_id),
        *_flexible_fetched(topics, by_id=version >= 10),
        PACK_INT16(error_code),
        NO_TAGS,
    ]


def pack_fetched_groups(
    correlation_id: int, throttle_time_ms: int, count: int, groups: Sequence[bytes]
) -> bytes:
    """Return the frame of an OffsetFetch reply v8-10. ``groups`` are the bytes of its ``count``
    groups, in pieces.
    """
    pieces = [varint(count + 1), *groups, NO_TAGS]
    return framed_pieces(correlation_id, throttle_time_ms, pieces, flexible=True, throttle=True)


def pack_large_groups(
    correlation_id: int, throttle_time_ms: int, count: int, groups: Sequence[bytes | bytearray]
) -> bytes:
    """Return the same frame as ``pack_fetched_groups``, but copy the bytes of the groups only
    once.
    """
    pieces = [varint(count + 1), *groups, NO_TAGS]
    return framed_large(correlation_id, throttle_time_ms, pieces, flexible=True, throttle=True)


def _flexible_fetched(topics: Sequence[FetchedTopic], *, by_id: bool) -> list[bytes]:
    pieces = [varint(len(topics) + 1)]
    for name, topic_id, partitions in topics:
        pieces.append(raw_topic_id(topic_id) if by_id else compact_string(name))
        pieces.append(varint(len(partitions) + 1))
        pieces += _flexible_partitions(partitions)
        pieces.append(NO_TAGS)
    return pieces


def pack_fetched_body(
    version: int, correlation_id: int, throttle_time_ms: int, count: int, body: bytearray
) -> bytes:
    """Return the frame of an OffsetFetch reply v2-7 without an error. ``count`` is the number of
    topics, ``body`` their encoded bytes."""
    assert 2 <= version < 8, version
    flexible = version >= 6
    head = varint(count + 1) if flexible else PACK_INT32(count)
    end = PACK_INT16(0) + NO_TAGS if flexible else PACK_INT16(0)
    return framed_large(
        correlation_id,
        throttle_time_ms,
        [head, body, end],
        flexible=flexible,
        throttle=version >= 3,
    )


def fetched_group_ends(group_id: str, count: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after the encoded topics of one group without an error, in an
    OffsetFetch reply v8-10. ``count`` is the number of topics.
    """
    return compact_string(group_id) + varint(count + 1), PACK_INT16(0) + NO_TAGS


ROWS: Final = 1_000
"""The largest number of partitions in one piece of a large reply; packing them takes 0.5 ms."""
FIRST_ROWS: Final = 64
"""The number of partitions in the first piece, before the size of a packed partition is known."""
PIECE_BYTES: Final = 65_536
"""If metadata is long, a piece has fewer partitions, so that it has about this size. The previous
piece shows how large a packed partition is.
"""


def fetched_pieces(
    version: int, topics: Iterable[tuple[str, str, Collection[FetchedPartition]]]
) -> Iterator[bytes]:
    """Yield the encoded topics of a large reply (v2+) in pieces.

    The generator keeps the bytes of at most one piece. Only the caller collects them.
    """
    flexible = version >= 6
    count = FIRST_ROWS
    for name, topic_id, partitions in topics:
        if not flexible:
            head = classic_string(name) + PACK_INT32(len(partitions))
        elif version >= 10:
            head = raw_topic_id(topic_id) + varint(len(partitions) + 1)
        else:
            head = compact_string(name) + varint(len(partitions) + 1)
        rows = iter(partitions)
        some = list(islice(rows, count))
        while True:
            packed = _packed_rows(version, some)
            count = min(ROWS, 1 + len(some) * PIECE_BYTES // (len(packed) + 1))
            some = list(islice(rows, count))
            yield head + packed + (NO_TAGS if flexible and not some else b"")
            if not some:
                break
            head = b""


def _packed_rows(version: int, rows: list[FetchedPartition]) -> bytes:
    if version >= 6:
        return b"".join(_flexible_partitions(rows))
    return b"".join(_classic_partitions(rows, with_epoch=version >= 5))


_HEAD: Final = Struct(">iqi").pack
_FLEXIBLE_TAIL: Final = Struct(">hx").pack
_FLEXIBLE_ROW: Final = Struct(">iqiBhx").pack
_EMPTY_COMPACT: Final = 1
"""The length of an empty compact string."""


def _flexible_partitions(partitions: list[FetchedPartition]) -> list[bytes]:
    # Usually no partition has metadata. Then one call of a struct packs a partition. The numbers
    # are typed Any, because mypyc would unpack and pack each int again.
    rows: list[tuple[Any, Any, Any, Any, Any]] = partitions
    return [
        _HEAD(partition, offset, epoch) + compact_string(text) + _FLEXIBLE_TAIL(code)
        if text
        else _FLEXIBLE_ROW(partition, offset, epoch, _EMPTY_COMPACT, code)
        for partition, offset, epoch, text, code in rows
    ]


_CLASSIC_HEAD: Final = Struct(">iq").pack
_CLASSIC_ROW: Final = Struct(">iq2xh").pack
_CLASSIC_ROW_EPOCH: Final = Struct(">iqi2xh").pack


def _classic_partitions(partitions: Sequence[FetchedPartition], *, with_epoch: bool) -> list[bytes]:
    if with_epoch:
        return [
            _HEAD(partition, offset, epoch) + classic_string(text) + PACK_INT16(code)
            if text
            else _CLASSIC_ROW_EPOCH(partition, offset, epoch, code)
            for partition, offset, epoch, text, code in partitions
        ]
    return [
        _CLASSIC_HEAD(partition, offset) + classic_string(text) + PACK_INT16(code)
        if text
        else _CLASSIC_ROW(partition, offset, code)
        for partition, offset, _, text, code in partitions
    ]
