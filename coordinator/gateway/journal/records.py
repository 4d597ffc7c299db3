"""Reads and writes the bytes of the journal's records (docs/design.md#journal). Pure.

The journal is a topic of ours. A record of it has the id of pending offsets as its key. Offsets are
pending until their transaction ends. The value is for a person who reads the topic.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from groupkeeper.protocol.record_batches import (
    ABORT_MARKER,
    COMMIT_MARKER,
    Sender,
    read_transactional,
    write_batch,
)

MAX_ID_BYTES: Final = 64
"""Longer keys are not ours: an id has 32 characters."""

_encode: Final = msgspec.json.Encoder().encode


class TransactionEntry(NamedTuple):
    """One entry of the journal: a record of a transaction, or the marker that ends it."""

    offset: int
    producer_id: int
    pending_id: str
    """The id of the pending offsets. Empty for a marker, and for a record that is not ours."""
    is_commit: bool | None = None
    """For a marker: whether the transaction committed. None for a record."""


def encode_batch(
    pending_id: str, group_id: str, sender: Sender, sequence: int, now_ms: int
) -> bytes:
    """Return a batch with the one record of these pending offsets, in the client's transaction."""
    value = _encode({"version": 1, "group": group_id})
    return write_batch(sender, sequence, now_ms, pending_id.encode(), value)


def read_entries(data: bytes, position: int) -> tuple[list[TransactionEntry], int]:
    """Return the entries of a fetch, from ``position`` on, and the offset of the next one.

    Raises ProtocolError if the bytes are damaged.
    """
    records, following = read_transactional(data, position)
    entries = []
    for offset, producer_id, key, marker in records:
        if marker is None:
            pending_id = key.decode(errors="replace") if len(key) <= MAX_ID_BYTES else ""
            entries.append(TransactionEntry(offset, producer_id, pending_id))
        elif marker in (ABORT_MARKER, COMMIT_MARKER):
            entries.append(TransactionEntry(offset, producer_id, "", marker == COMMIT_MARKER))
    return entries, following
