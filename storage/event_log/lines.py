"""Renders the events of a row of the store as lines of a segment (pure). A row has the events of
one append. A segment is a file of events.

The lines have the content of ``storage.codec.events.event_dict``. A property test compares both.
Most events are commits, so commits have a fast path: the JSON of a commit is the same in the row
and in the line. Its bytes are copied after the common fields, without decoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.records import COMMIT_API, TXN_COMMIT_API, OffsetsCommitted
from groupkeeper.storage.codec.events import NO_GROUP_TYPE, Stamp, event_dict, stamp_fields
from groupkeeper.storage.codec.records import (
    PayloadHead,
    checked_decoder,
    decode_payload,
    is_version_1,
    payload_events,
)
from groupkeeper.storage.segment_lines import COMMIT_KIND, EventLine, encode_line

_encode: Final = msgspec.json.Encoder().encode
_decode_text: Final = msgspec.json.Decoder(str).decode
_decode_commit: Final = msgspec.json.Decoder(OffsetsCommitted).decode

KEPT_ID_BYTES: Final = 256
"""The longest group id, as JSON, that is cached. The cache has 10,000 entries, and clients choose
the ids."""


class RowLines(NamedTuple):
    """The events of a row, in the order of seq."""

    log_id: str
    first_seq: int
    ts_ms: int
    lines: Iterable[EventLine]


# --- decoding: as storage.codec.records.Payload, but records stay raw JSON ------------------------


class _StoredBatch(msgspec.Struct, gc=False):
    records: Sequence[msgspec.Raw]
    events: Sequence[Event]


class _StoredItem(msgspec.Struct, gc=False):
    shard: int
    lease_epoch: int
    batches: Sequence[_StoredBatch]


class _StoredPayload(PayloadHead, frozen=True):
    items: list[_StoredItem]


_decode: Final = checked_decoder(_StoredPayload)

_COMMIT: Final = b'{"record":"commit","group":'
"""The first bytes of a commit in a row. The id of its group follows."""
_GENERATION: Final = b',"generation":'
"""The bytes that follow the group id. No JSON string contains them, because a quote in a string has
a backslash before it."""
_TOPICS_END: Final = b"]}"
"""The end of a commit of a classic group: no field follows its topics."""
_TXN_END: Final = b',"api":"%b"}' % TXN_COMMIT_API.encode()
"""The end of a commit by a transaction. Such a commit is decoded, because its API is not the one in
the common fields."""


def row_lines(first_seq: int, data: bytes) -> RowLines:
    """Render the events of a row, numbered from ``first_seq``.

    Raises StorageError for a row that this version cannot read.
    """
    if is_version_1(data):
        return _row_lines_v1(first_seq, data)
    payload = _decode(data)
    return RowLines(payload.log_id, first_seq, payload.ts_ms, _lines(first_seq, payload))


def _row_lines_v1(first_seq: int, data: bytes) -> RowLines:
    payload = decode_payload(data)
    events = payload_events(first_seq, payload)
    lines = ((event["group"], encode_line(event)) for event in events)
    return RowLines(payload.log_id, first_seq, payload.ts_ms, lines)


def _lines(seq: int, payload: _StoredPayload) -> Iterator[EventLine]:
    stamp = Stamp(payload.log_id, payload.ts_ms, payload.clock_ms)
    common = _commit_head(stamp)
    for item in payload.items:
        head = common % (item.shard, item.lease_epoch)
        for batch in item.batches:
            # In the order of storage.codec.events.batch_events.
            for event in batch.events:
                rendered = event_dict(stamp, seq, item.shard, item.lease_epoch, event)
                yield event.group_id, _encode(rendered) + b"\n"
                seq += 1
            for raw in batch.records:
                record = bytes(raw)
                if not record.startswith(_COMMIT):
                    continue
                if record.endswith(_TXN_END):
                    commit = _decode_commit(record)
                    rendered = event_dict(stamp, seq, item.shard, item.lease_epoch, commit)
                    yield commit.group_id, encode_line(rendered)
                else:
                    at = record.index(_GENERATION)
                    written = record[len(_COMMIT) : at]
                    kept = len(written) <= KEPT_ID_BYTES
                    group_id, named = (_named if kept else _name)(written)
                    if not record.endswith(_TOPICS_END):
                        named = b',"group":' + written  # the record has the type itself
                    yield group_id, b"%b%d%b%b\n" % (head, seq, named, record[at:])
                seq += 1


def _name(written: bytes) -> tuple[str, bytes]:
    """Return a group id, decoded from JSON, and the fields of a line that name the group.

    The record of a commit has the type of its group only if the group is not classic.
    """
    group_id = _decode_text(written)
    group_type = GroupType.CLASSIC.value if group_id else NO_GROUP_TYPE
    return group_id, b',"group_type":%b,"group":%b' % (_encode(group_type), written)


_named: Final = lru_cache(10_000)(_name)
"""``_name`` with a cache, because most commits belong to a few groups."""


def _commit_head(stamp: Stamp) -> bytes:
    """Return the common fields of a row's commits. The result is a format for the shard and the
    lease epoch.
    """
    common = _encode(stamp_fields(stamp) | {"kind": COMMIT_KIND, "api": COMMIT_API})[:-1]
    return common.replace(b"%", b"%%") + b',"shard":%d,"lease_epoch":%d,"seq":'
