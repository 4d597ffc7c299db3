"""Events as lines of a segment, straight from a row of the log (pure).

The same content as ``event_codec.event_dict``, which a property test holds it to. Commits are most
of what there is, and have a way of their own: a topic's partitions, nine tenths of a commit, are
neither decoded nor encoded again but copied as they stand in the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from coordinator.core.events import Event
from coordinator.core.records import (
    GroupConfigs,
    GroupRecord,
    GroupRemoved,
    OffsetsRemoved,
    PartitionEnd,
    SavedGroup,
    TopicRecord,
    TopicRemoved,
)
from storage.event_codec import Stamp, event_dict
from storage.record_codec import PayloadHead, checked_decoder
from storage.segment_lines import COMMIT_KIND

_encode: Final = msgspec.json.Encoder().encode


class EventLine(NamedTuple):
    """One event, and what a segment wants to know of it."""

    group_id: str
    line: bytes


class RowLines(NamedTuple):
    """The events of a row, in the order of seq, each as a line with its newline."""

    log_id: str
    first_seq: int
    ts_ms: int
    lines: Iterable[EventLine]


# --- what is decoded: as storage.record_codec.Payload, but the partitions stay what they are ------


class _StoredTopic(msgspec.Struct, gc=False, array_like=True):
    topic: str
    topic_id: str
    partitions: msgspec.Raw


class _StoredCommit(msgspec.Struct, gc=False, tag="commit", tag_field="record"):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    principal: str
    commit_time_ms: int
    expire_time_ms: int
    topics: list[_StoredTopic]


class _StoredBatch(msgspec.Struct, gc=False):
    records: Sequence[
        _StoredCommit
        | GroupRecord
        | GroupRemoved
        | OffsetsRemoved
        | SavedGroup
        | PartitionEnd
        | TopicRecord
        | TopicRemoved
        | GroupConfigs
    ]
    events: Sequence[Event]


class _StoredItem(msgspec.Struct, gc=False):
    shard: int
    lease_epoch: int
    batches: Sequence[_StoredBatch]


class _StoredPayload(PayloadHead, frozen=True):
    items: list[_StoredItem]


_decode: Final = checked_decoder(_StoredPayload)

# --- what is encoded: the fields of event_codec.event_dict, in its order --------------------------


class _Topic(msgspec.Struct, gc=False):
    topic: str
    topic_id: str
    rows: msgspec.Raw


class _Commit(msgspec.Struct, gc=False):
    log_id: str
    seq: int
    ts_ms: int
    clock_ms: int | msgspec.UnsetType
    shard: int
    lease_epoch: int
    kind: str
    group: str
    generation: int
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    principal: str
    api: str
    commit_time_ms: int
    expire_time_ms: int
    topics: list[_Topic]
    group_type: str


def row_lines(first_seq: int, data: bytes) -> RowLines:
    """Render the events of a row, numbered from ``first_seq``.

    Raises StorageError for a row that this version cannot read.
    """
    payload = _decode(data)
    return RowLines(payload.log_id, first_seq, payload.ts_ms, _lines(first_seq, payload))


def _lines(seq: int, payload: _StoredPayload) -> Iterator[EventLine]:
    stamp = Stamp(payload.log_id, payload.ts_ms, payload.clock_ms)
    for item in payload.items:
        for batch in item.batches:
            # In the order of event_codec.batch_events.
            for event in batch.events:
                rendered = event_dict(stamp, seq, item.shard, item.lease_epoch, event)
                yield EventLine(event.group, _encode(rendered) + b"\n")
                seq += 1
            for record in batch.records:
                if type(record) is _StoredCommit:
                    commit = _commit(stamp, seq, item.shard, item.lease_epoch, record)
                    yield EventLine(record.group_id, _encode(commit) + b"\n")
                    seq += 1


def _commit(stamp: Stamp, seq: int, shard: int, lease_epoch: int, commit: _StoredCommit) -> _Commit:
    return _Commit(
        stamp.log_id,
        seq,
        stamp.ts_ms,
        msgspec.UNSET if stamp.clock_ms == stamp.ts_ms else stamp.clock_ms,
        shard,
        lease_epoch,
        COMMIT_KIND,
        commit.group_id,
        commit.generation_id,
        commit.member_id,
        commit.group_instance_id,
        commit.client_id,
        commit.client_host,
        commit.principal,
        "OffsetCommit",
        commit.commit_time_ms,
        commit.expire_time_ms,
        [_Topic(topic.topic, topic.topic_id, topic.partitions) for topic in commit.topics],
        "classic" if commit.group_id else "",
    )
