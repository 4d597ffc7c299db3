"""The encoding of an append: one JSON document, format version 3 (pure).

    {"version": 3, "log_id": "…", "ts_ms": 1, "clock_ms": 1, "folded_row": 0,
     "items": [{"shard": 7, "lease_epoch": 3, "batches": [{"records": […], "events": […]}]}]}

``record`` is the type of a record, and ``kind`` is the type of an event. Bytes are base64. msgspec
encodes the types of ``coordinator.core``. A field with a default may be added to them. To remove a
field or change its meaning needs a new version here.

An append is encoded once, on the loop. Loads and readers of events decode it. Sealing copies a
commit into the log's files unchanged (``storage.event_log.lines``). Rows of format version 1 are
still read (``storage.codec.payload_v1``). Version 2 had no records of consumer groups, and is
otherwise the same. A saved group, which a fold writes, is one ``SavedGroup`` document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from groupkeeper.coordinator.core.records import (
    AdoptionMark,
    GroupConfigs,
    JournalPosition,
    ListenerPort,
    PartitionEnd,
    PendingEnded,
    PendingOffsets,
    Record,
    SavedGroup,
    TopicRecord,
    TopicRemoved,
    UpstreamId,
)
from groupkeeper.storage.base import Batch, LeaseEpoch, ShardAppend, ShardId, StorageError
from groupkeeper.storage.codec import payload_v1
from groupkeeper.storage.codec.events import Stamp, batch_events, event_dict
from groupkeeper.storage.segment_lines import EventDict

FORMAT_VERSION = 3
"""The format version of the payloads that are written."""

_READABLE = (1, 2, FORMAT_VERSION)

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that msgspec raises for damaged bytes."""


class PayloadItem(msgspec.Struct, frozen=True):
    """The batches of one shard."""

    shard: ShardId
    lease_epoch: LeaseEpoch
    batches: Sequence[Batch]


class PayloadHead(msgspec.Struct, frozen=True):
    """The first fields of a payload. They are enough to continue a log after its last payload."""

    version: int
    log_id: str
    ts_ms: int
    clock_ms: int
    folded_row: int
    """When this append was encoded, everything up to this row of the log was folded: the present
    state of its groups was saved."""


class Payload(PayloadHead, frozen=True):
    """The content of one row of the log: the records and events of one append."""

    items: list[PayloadItem]


_H = TypeVar("_H", bound=PayloadHead)


def checked_decoder(payload_type: type[_H]) -> Callable[[bytes], _H]:
    """Return a function that decodes a whole payload, or only the fields of ``payload_type``.

    The function raises StorageError if this version of groupkeeper cannot read the payload.
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
    """Return True if a payload has format version 1; the version is always its first field."""
    return data.startswith(b'{"version":1,')


def decode_payload(data: bytes) -> Payload:
    """Decode an append. Raises StorageError if this version of groupkeeper cannot read it."""
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
"""Decodes only the head of a payload. Raises StorageError if it cannot be read."""

_encoder = msgspec.json.Encoder()
_saved_decoder = msgspec.json.Decoder(SavedGroup)
_record_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode_payload(stamp: Stamp, folded_row: int, items: Sequence[ShardAppend]) -> bytes:
    """Encode an append; items without batches are left out."""
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
    """Decode the folded state of a group. Raises StorageError if it cannot be read."""
    try:
        return _saved_decoder.decode(data)
    except UNREADABLE as error:
        raise StorageError(f"a saved group cannot be read: {error}") from error


def encode_record(record: Record) -> bytes:
    """Encode one record, tagged with its type."""
    return _encoder.encode(record)


def decode_record(data: bytes) -> Record:
    """Decode one record. Raises StorageError if it cannot be read."""
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


WITH_OWN_KEY = frozenset(
    {
        PartitionEnd,
        TopicRecord,
        TopicRemoved,
        GroupConfigs,
        ListenerPort,
        UpstreamId,
        PendingOffsets,
        PendingEnded,
        JournalPosition,
        AdoptionMark,
    }
)
"""The types of keyed records: topics, configs, ports, ends of partitions, open transactions, and
records of gateway mode. All other records change a group."""


def group_of(record: Record) -> str | None:
    """Return the group that a record changes; None for a keyed record (``WITH_OWN_KEY``)."""
    return None if type(record) in WITH_OWN_KEY else record.group_id  # type: ignore[union-attr]


def own_key(record: Record) -> tuple[str, bool]:  # noqa: C901 - one case a type
    """Return the key of a keyed record. Also return True if the record sets the key, and False if
    the record clears the key.
    """
    match record:
        case PartitionEnd():
            return f"end/{record.topic_id}/{record.partition}", record.end_offset >= 0
        case TopicRecord():
            return f"topic/{record.name}", True
        case TopicRemoved():
            return f"topic/{record.name}", False
        case GroupConfigs():
            return f"configs/{record.group_id}", bool(record.configs)
        case ListenerPort():
            return f"port/{record.broker_id}", record.port > 0
        case PendingOffsets():
            return f"pending/{record.pending_id}", True
        case PendingEnded():
            return f"pending/{record.pending_id}", False
        case JournalPosition():
            return "journal", True
        case AdoptionMark():
            return f"adoption/{record.group_id}", bool(record.state)
        case UpstreamId():
            return "upstream", True
        case _:
            raise TypeError(f"{type(record).__name__} has no key of its own")
