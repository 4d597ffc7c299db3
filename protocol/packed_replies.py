"""The replies to the hot requests by plain struct code: whole frames from plain tuples.

Topic ids are Kafka's printed form, 22 characters of URL-safe base64, "" for the zero id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from struct import Struct
from typing import Final, TypeAlias

from protocol.packed import CommitTopic
from protocol.packing import (
    NO_TAGS,
    PACK_INT16,
    PACK_INT32,
    classic_bytes,
    compact_bytes,
    framed,
    raw_topic_id,
    rows,
    varint,
)

FetchedPartition: TypeAlias = tuple[int, int, int, str, int]
"""(partition, offset, leader epoch, metadata, error)."""

FetchedTopic: TypeAlias = tuple[str, str, list[FetchedPartition]]
"""(name, topic id, partitions)."""


# --- Heartbeat ---

_HEARTBEAT_REPLIES: Final = {
    0: (Struct(">iih").pack, 6),
    1: (Struct(">ii4xh").pack, 10),
    2: (Struct(">ii4xh").pack, 10),
    3: (Struct(">ii4xh").pack, 10),
    4: (Struct(">ii5xhx").pack, 12),
}
"""Length, correlation id, (no tags), throttle time 0, error, (no tags)."""


def pack_heartbeat(version: int, correlation_id: int, error_code: int) -> bytes:
    """Return the frame of a Heartbeat reply."""
    pack, size = _HEARTBEAT_REPLIES[version]
    return pack(size, correlation_id, error_code)


# --- OffsetCommit ---


def pack_offset_commit(
    version: int, correlation_id: int, topics: Iterable[CommitTopic], error_code: int
) -> bytes:
    """Return the frame of an OffsetCommit reply with one error for every partition."""
    return _pack_commit_reply(
        version,
        correlation_id,
        [
            (name, topic_id, [number for p in partitions for number in (p[0], error_code)])
            for name, topic_id, partitions in topics
        ],
    )


def pack_offset_commit_results(
    version: int,
    correlation_id: int,
    topics: Iterable[tuple[str, str, Sequence[tuple[int, int]]]],
) -> bytes:
    """Return the frame of an OffsetCommit reply from (name, topic id, [(partition, error)])."""
    return _pack_commit_reply(
        version,
        correlation_id,
        [(name, topic_id, list(chain.from_iterable(rows))) for name, topic_id, rows in topics],
    )


def _pack_commit_reply(
    version: int, correlation_id: int, topics: list[tuple[str, str, list[int]]]
) -> bytes:
    """Pack from (name, topic id, [partition, error, partition, error...])."""
    if version < 8:
        pieces = [PACK_INT32(len(topics))]
        for name, _, values in topics:
            count = len(values) // 2
            pieces += (classic_bytes(name), PACK_INT32(count), rows("ih", values, count))
        body = b"".join(pieces)
        return framed(correlation_id, body, flexible=False, throttle=version >= 3)
    pieces = [varint(len(topics) + 1)]
    for name, topic_id, values in topics:
        count = len(values) // 2
        pieces += (
            raw_topic_id(topic_id) if version >= 10 else compact_bytes(name),
            varint(count + 1),
            rows("ihx", values, count),
            NO_TAGS,
        )
    pieces.append(NO_TAGS)
    return framed(correlation_id, b"".join(pieces), flexible=True, throttle=True)


# --- OffsetFetch ---


def pack_offset_fetch(
    version: int, correlation_id: int, topics: Sequence[FetchedTopic], error_code: int
) -> bytes:
    """Return the frame of an OffsetFetch reply v0-7; v0-1 have no room for ``error_code``."""
    assert version < 8, version
    if version >= 6:
        pieces = [*_flexible_fetched(topics, by_id=False), PACK_INT16(error_code), NO_TAGS]
        return framed(correlation_id, b"".join(pieces), flexible=True, throttle=True)
    pieces = [PACK_INT32(len(topics))]
    for name, _, partitions in topics:
        pieces += (classic_bytes(name), PACK_INT32(len(partitions)))
        pieces.append(_classic_partitions(partitions, with_epoch=version >= 5))
    if version >= 2:
        pieces.append(PACK_INT16(error_code))
    return framed(correlation_id, b"".join(pieces), flexible=False, throttle=version >= 3)


def pack_offset_fetch_groups(
    version: int,
    correlation_id: int,
    groups: Sequence[tuple[str, Sequence[FetchedTopic], int]],
) -> bytes:
    """Return the frame of an OffsetFetch reply v8-10 from (group id, topics, error)."""
    assert version >= 8, version
    pieces = [varint(len(groups) + 1)]
    for group_id, topics, error_code in groups:
        pieces.append(compact_bytes(group_id))
        pieces += _flexible_fetched(topics, by_id=version >= 10)
        pieces += (PACK_INT16(error_code), NO_TAGS)
    pieces.append(NO_TAGS)
    return framed(correlation_id, b"".join(pieces), flexible=True, throttle=True)


def _flexible_fetched(topics: Sequence[FetchedTopic], *, by_id: bool) -> list[bytes]:
    pieces = [varint(len(topics) + 1)]
    for name, topic_id, partitions in topics:
        pieces += (
            raw_topic_id(topic_id) if by_id else compact_bytes(name),
            varint(len(partitions) + 1),
            _flexible_partitions(partitions),
            NO_TAGS,
        )
    return pieces


_FLEXIBLE_HEAD: Final = Struct(">iqi").pack
_FLEXIBLE_TAIL: Final = Struct(">hx").pack


def _flexible_partitions(partitions: Sequence[FetchedPartition]) -> bytes:
    if not partitions:
        return b""
    indexes, offsets, epochs, texts, errors = zip(*partitions, strict=True)
    if not any(texts):
        # The byte 1 is the length of an empty compact string.
        values = list(chain.from_iterable(zip(indexes, offsets, epochs, repeat(1), errors)))
        return rows("iqiBhx", values, len(partitions))
    return b"".join(
        _FLEXIBLE_HEAD(partition, offset, epoch) + compact_bytes(text) + _FLEXIBLE_TAIL(code)
        for partition, offset, epoch, text, code in partitions
    )


_CLASSIC_HEAD: Final = Struct(">iq").pack


def _classic_partitions(partitions: Sequence[FetchedPartition], *, with_epoch: bool) -> bytes:
    if with_epoch:
        return b"".join(
            _FLEXIBLE_HEAD(partition, offset, epoch) + classic_bytes(text) + PACK_INT16(code)
            for partition, offset, epoch, text, code in partitions
        )
    return b"".join(
        _CLASSIC_HEAD(partition, offset) + classic_bytes(text) + PACK_INT16(code)
        for partition, offset, _, text, code in partitions
    )
