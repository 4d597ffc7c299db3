"""The replies to the hot requests by plain struct code: whole frames from plain tuples.

Topic ids are in Kafka's printed form, 22 characters of URL-safe base64, "" for the zero id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from struct import Struct
from typing import Final, TypeAlias

from groupkeeper.protocol.packed import CommitTopic
from groupkeeper.protocol.packing import (
    NO_TAGS,
    PACK_INT16,
    PACK_INT32,
    classic_string,
    compact_string,
    framed,
    framed_pieces,
    raw_topic_id,
    varint,
)

FetchedPartition: TypeAlias = tuple[int, int, int, str, int]
"""(partition, offset, leader epoch, metadata, error)."""

FetchedTopic: TypeAlias = tuple[str, str, list[FetchedPartition]]
"""(name, topic id, partitions)."""


# --- Heartbeat ---

_HEARTBEAT_V0: Final = Struct(">iih").pack
_HEARTBEAT_V1: Final = Struct(">iiih").pack
_HEARTBEAT_V4: Final = Struct(">iixihx").pack
"""Length, correlation id, (no tags), throttle time, error, (no tags)."""


def pack_heartbeat(
    version: int, correlation_id: int, throttle_time_ms: int, error_code: int
) -> bytes:
    """Return the frame of a Heartbeat reply."""
    if version >= 4:
        return _HEARTBEAT_V4(12, correlation_id, throttle_time_ms, error_code)
    if version >= 1:
        return _HEARTBEAT_V1(10, correlation_id, throttle_time_ms, error_code)
    return _HEARTBEAT_V0(6, correlation_id, error_code)


# --- OffsetCommit ---

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
    row = _COMMIT_ROW if version < 8 else _COMMIT_ROW_FLEXIBLE
    return _pack_commit_reply(
        version,
        correlation_id,
        throttle_time_ms,
        [
            (name, topic_id, [row(p[0], error_code) for p in partitions])
            for name, topic_id, partitions in topics
        ],
    )


def pack_offset_commit_results(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    topics: Iterable[tuple[str, str, Sequence[tuple[int, int]]]],
) -> bytes:
    """Return the frame of an OffsetCommit reply from (name, topic id, [(partition, error)])."""
    row = _COMMIT_ROW if version < 8 else _COMMIT_ROW_FLEXIBLE
    return _pack_commit_reply(
        version,
        correlation_id,
        throttle_time_ms,
        [
            (name, topic_id, [row(partition, error) for partition, error in partitions])
            for name, topic_id, partitions in topics
        ],
    )


def _pack_commit_reply(
    version: int,
    correlation_id: int,
    throttle_time_ms: int,
    topics: list[tuple[str, str, list[bytes]]],
) -> bytes:
    """Pack a reply from (name, topic id, packed partitions)."""
    if version < 8:
        pieces = [PACK_INT32(len(topics))]
        for name, _, rows in topics:
            pieces += (classic_string(name), PACK_INT32(len(rows)), *rows)
        body = b"".join(pieces)
        return framed(correlation_id, throttle_time_ms, body, flexible=False, throttle=version >= 3)
    pieces = [varint(len(topics) + 1)]
    for name, topic_id, rows in topics:
        pieces += (
            raw_topic_id(topic_id) if version >= 10 else compact_string(name),
            varint(len(rows) + 1),
            *rows,
            NO_TAGS,
        )
    pieces.append(NO_TAGS)
    body = b"".join(pieces)
    return framed(correlation_id, throttle_time_ms, body, flexible=True, throttle=True)


# --- OffsetFetch ---


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
    """Return the parts of one group in an OffsetFetch reply v8-10."""
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
    """Return the frame of an OffsetFetch reply v8-10 from the bytes of its groups."""
    pieces = [varint(count + 1), *groups, NO_TAGS]
    return framed_pieces(correlation_id, throttle_time_ms, pieces, flexible=True, throttle=True)


def _flexible_fetched(topics: Sequence[FetchedTopic], *, by_id: bool) -> list[bytes]:
    pieces = [varint(len(topics) + 1)]
    for name, topic_id, partitions in topics:
        pieces += (
            raw_topic_id(topic_id) if by_id else compact_string(name),
            varint(len(partitions) + 1),
            *_flexible_partitions(partitions),
            NO_TAGS,
        )
    return pieces


def pack_fetched_slices(
    version: int, correlation_id: int, throttle_time_ms: int, count: int, slices: list[bytes]
) -> bytes:
    """Return the frame of an OffsetFetch reply v2-7 from its number of topics and their bytes."""
    assert 2 <= version < 8, version
    if version >= 6:
        pieces = [varint(count + 1), *slices, PACK_INT16(0), NO_TAGS]
        return framed_pieces(correlation_id, throttle_time_ms, pieces, flexible=True, throttle=True)
    pieces = [PACK_INT32(count), *slices, PACK_INT16(0)]
    return framed_pieces(
        correlation_id, throttle_time_ms, pieces, flexible=False, throttle=version >= 3
    )


def pack_fetched_group_slices(group_id: str, count: int, slices: list[bytes]) -> list[bytes]:
    """Return the parts of one group in an OffsetFetch reply v8-10 from encoded topics."""
    return [compact_string(group_id), varint(count + 1), *slices, PACK_INT16(0), NO_TAGS]


ROWS: Final = 1_000
"""Partitions in one piece of a large reply; packing them takes 0.5 ms."""


def fetched_pieces(
    version: int, topics: Iterable[tuple[str, str, Collection[FetchedPartition]]]
) -> Iterator[bytes]:
    """Yield the encoded topics of a large reply (v2+), in pieces of at most ``ROWS`` partitions."""
    flexible = version >= 6
    with_epoch = version >= 5
    for name, topic_id, partitions in topics:
        if not flexible:
            head = classic_string(name) + PACK_INT32(len(partitions))
        elif version >= 10:
            head = raw_topic_id(topic_id) + varint(len(partitions) + 1)
        else:
            head = compact_string(name) + varint(len(partitions) + 1)
        rows = iter(partitions)
        some = list(islice(rows, ROWS))
        while True:
            if flexible:
                packed = _flexible_partitions(some)
            else:
                packed = _classic_partitions(some, with_epoch=with_epoch)
            some = list(islice(rows, ROWS))
            yield head + b"".join(packed) + (NO_TAGS if flexible and not some else b"")
            if not some:
                break
            head = b""


_HEAD: Final = Struct(">iqi").pack
_FLEXIBLE_TAIL: Final = Struct(">hx").pack
_FLEXIBLE_ROW: Final = Struct(">iqiBhx").pack
_EMPTY_COMPACT: Final = 1
"""The length of an empty compact string."""


def _flexible_partitions(partitions: Sequence[FetchedPartition]) -> list[bytes]:
    # Usually no partition has metadata: one struct for each.
    return [
        _HEAD(partition, offset, epoch) + compact_string(text) + _FLEXIBLE_TAIL(code)
        if text
        else _FLEXIBLE_ROW(partition, offset, epoch, _EMPTY_COMPACT, code)
        for partition, offset, epoch, text, code in partitions
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
