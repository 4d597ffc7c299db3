"""Encode the saved state of a large group in pieces, and let the event loop run between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import msgspec

from groupkeeper.coordinator.core.groups.group import offset_bytes, topic_bytes
from groupkeeper.coordinator.core.records import SavedGroup, SavedOffset
from groupkeeper.storage.codec.records import encode_saved

PIECE_BYTES: Final = 512 * 1024
"""The approximate size of a piece. Encoding a piece takes up to 5 ms."""

_NO_OFFSETS: Final = b"}}"
"""The end of a saved group without offsets."""

_encode: Final = msgspec.json.Encoder().encode


def snapshot_of(group: SavedGroup) -> SavedGroup:
    """Return a copy that does not change with the group. The offsets themselves never change."""
    offsets = {topic: dict(partitions) for topic, partitions in group.offsets.items()}
    return SavedGroup(group.group_id, group.metadata, offsets)


async def encode_in_pieces(group: SavedGroup, piece_bytes: int = PIECE_BYTES) -> bytes:
    """Return the same bytes as ``encode_saved``. Other tasks run after each piece, so pass a copy
    that does not change (``snapshot_of``).
    """
    pieces = []
    for piece in _pieces(group, piece_bytes):
        pieces.append(piece)
        await asyncio.sleep(0)
    return b"".join(pieces)


def _pieces(group: SavedGroup, piece_bytes: int) -> Iterator[bytes]:
    bare = encode_saved(SavedGroup(group.group_id, group.metadata, {}))
    piece = bytearray(bare.removesuffix(_NO_OFFSETS))
    comma = b""
    for topic, partitions in group.offsets.items():
        piece += comma + _encode(topic) + b":{"
        comma = b","
        inner_comma = b""
        for portion in _portions(topic, partitions, piece_bytes):
            piece += inner_comma + _encode(portion)[1:-1]
            inner_comma = b","
            if len(piece) >= piece_bytes:
                yield bytes(piece)
                piece.clear()
        piece += b"}"
    yield bytes(piece) + _NO_OFFSETS


def _portions(
    topic: str, partitions: dict[int, SavedOffset], piece_bytes: int
) -> Iterator[dict[int, SavedOffset]]:
    """Yield the offsets of a topic in portions of about ``piece_bytes``. No portion is empty."""
    portion: dict[int, SavedOffset] = {}
    size = topic_bytes(topic)
    for number, stored in partitions.items():
        portion[number] = stored
        size += offset_bytes(stored.metadata)
        if size >= piece_bytes:
            yield portion
            portion, size = {}, 0
    if portion:
        yield portion
