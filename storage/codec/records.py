"""How an append is written down: one JSON document, format version 2 (pure).

    {"version": 2, "log_id": "…", "ts_ms": 1, "clock_ms": 1, "folded_row": 0,
     "items": [{"shard": 7, "lease_epoch": 3, "batches": [{"records": […], "events": […]}]}]}

A record carries its type in ``record``, an event in ``kind``; bytes are base64. The format is
msgspec's reading of the types in ``coordinator.core``: a field may be added there with a default,
but none may be removed or change its meaning without a new version here. It is encoded once, on the
loop, and decoded by a load and by readers of events; a commit is copied into the log's files as it
stands there (``storage.event_log.lines``). Rows of format version 1 are read for ever
(``storage.codec.payload_v1``). A saved group (what a fold writes) is one ``SavedGroup`` document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from groupkeeper.coordinator.core.records import (
    GroupConfigs,
    PartitionEnd,
    Record,
    SavedGroup,
    TopicRecord,
    TopicRemoved,
)
from groupkeeper.storage.base import Batch, LeaseEpoch, ShardAppend, ShardId, StorageError
from groupkeeper.storage.codec import payload_v1
from groupkeeper.storage.codec.events import Stamp, batch_events, event_dict
from groupkeeper.storage.segment_lines import EventDict

FORMAT_VERSION = 2
"""What is written."""

_READABLE = (1, FORMAT_VERSION)

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not what was written."""


class PayloadItem(msgspec.Struct, frozen=True):
    """What one shard wrote."""

    shard: ShardId
    lease_epoch: LeaseEpoch
    batches: Sequence[Batch]


class PayloadHead(msgspec.Struct, frozen=True):
    """The head of a payload: enough to go on writing after it."""

    version: int
    log_id: str
    ts_ms: int
    clock_ms: int
    folded_row: int
    """Everything up to this log row was in the folded tables when the payload was written."""


class Payload(PayloadHead, frozen=True):
    """One append."""

    items: list[PayloadItem]


_H = TypeVar("_H", bound=PayloadHead)


def checked_decoder(payload_type: type[_H]) -> Callable[[bytes], _H]:
    """Make what reads a payload, or as much of it as the type has.

    It raises StorageError for what this groupkeeper cannot read.
    """
    decode = msgspec.json.Decoder(payload_type).decode

    def checked(data: bytes) -> _H:
        try:
            payload = decode(data)
        except UNREADABLE as error:
            raise StorageError(f"a log row cannot be read: {error}") from error
        if payload.version not in _READABLE:
            raise StorageError(
                f"a log row has format version {payload.version}, this groupkeeper reads up to "
                f"{FORMAT_VERSION}"
            )
        return payload

    return checked


class _ItemV1(msgspec.Struct):
    shard: ShardId
    lease_epoch: LeaseEpoch
    batches: msgspec.Raw


class _PayloadV1(PayloadHead, frozen=True):
    items: list[_ItemV1]


_decode_payload: Final = checked_decoder(Payload)
_decode_payload_v1: Final = checked_decoder(_PayloadV1)


def is_version_1(data: bytes) -> bool:
    """Whether a payload is of format version 1: the version is the first thing that it says."""
    return data.startswith(b'{"version":1,')


def decode_payload(data: bytes) -> Payload:
    """Read an append. Raises StorageError for what this groupkeeper cannot read."""
    if not is_version_1(data):
        return _decode_payload(data)
    old = _decode_payload_v1(data)
    try:
        items = [
            PayloadItem(item.shard, item.lease_epoch, payload_v1.batches_of(item.batches))
            for item in old.items
        ]
    except UNREADABLE as error:
        raise StorageError(f"a log row cannot be read: {error}") from error
    return Payload(old.version, old.log_id, old.ts_ms, old.clock_ms, old.folded_row, items)


decode_head: Final = checked_decoder(PayloadHead)
"""Reads the head of a payload alone."""

_encoder = msgspec.json.Encoder()
_saved_decoder = msgspec.json.Decoder(SavedGroup)
_record_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode_payload(stamp: Stamp, folded_row: int, items: Sequence[ShardAppend]) -> bytes:
    """Encode an append; items without batches leave no trace."""
    return _encoder.encode(
        Payload(
            FORMAT_VERSION,
            stamp.log_id,
            stamp.ts_ms,
            stamp.clock_ms,
            folded_row,
            [PayloadItem(item.shard, item.fence, item.batches) for item in items if item.batches],
        )
    )


def encode_saved(group: SavedGroup) -> bytes:
    """Encode the folded state of a group."""
    return _encoder.encode(group)


def decode_saved(data: bytes) -> SavedGroup:
    """Decode the folded state of a group."""
    try:
        return _saved_decoder.decode(data)
    except UNREADABLE as error:
        raise StorageError(f"a saved group cannot be read: {error}") from error


def encode_record(record: Record) -> bytes:
    """Encode one record, tagged with its type."""
    return _encoder.encode(record)


def decode_record(data: bytes) -> Record:
    """Decode one record."""
    try:
        return _record_decoder.decode(data)
    except UNREADABLE as error:
        raise StorageError(f"a record cannot be read: {error}") from error


def payload_events(first_seq: int, payload: Payload) -> Iterator[EventDict]:
    """Yield the events of a payload, complete and numbered from ``first_seq``."""
    stamp = Stamp(payload.log_id, payload.ts_ms, payload.clock_ms)
    seq = first_seq
    for item in payload.items:
        for batch in item.batches:
            for event in batch_events(batch.records, batch.events):
                yield event_dict(stamp, seq, item.shard, item.lease_epoch, event)
                seq += 1


WITH_OWN_KEY = frozenset({PartitionEnd, TopicRecord, TopicRemoved, GroupConfigs})
"""Types of the records that stand for themselves; the others change a group."""


def group_of(record: Record) -> str | None:
    """The group that a record changes; None for a record with a key of its own."""
    return None if type(record) in WITH_OWN_KEY else record.group_id  # type: ignore[union-attr]


def own_key(record: Record) -> tuple[str, bool]:
    """The key of a record that stands for itself, and whether the record sets or clears it."""
    match record:
        case PartitionEnd():
            return f"end/{record.topic_id}/{record.partition}", record.end_offset >= 0
        case TopicRecord():
            return f"topic/{record.name}", True
        case TopicRemoved():
            return f"topic/{record.name}", False
        case GroupConfigs():
            return f"configs/{record.group_id}", bool(record.configs)
        case _:
            raise TypeError(f"{type(record).__name__} has no key of its own")
