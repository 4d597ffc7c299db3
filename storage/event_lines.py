"""Events as lines of a segment, straight from a row of the log (pure).

The same content as ``event_codec.event_dict``, which a property test holds it to. Commits are most
of what there is, and have a way of their own: as dicts they would cost the process as much as the
daemon needs to answer them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from coordinator.core.records import CommittedTopic, OffsetsCommitted
from storage.event_codec import COMMIT_KIND, Stamp, batch_events, event_dict
from storage.record_codec import Payload

_encode: Final = msgspec.json.Encoder().encode


class EventLine(NamedTuple):
    """One event, and what a segment wants to know of it."""

    seq: int
    group_id: str
    line: bytes


class _Partition(msgspec.Struct, gc=False):
    partition: int
    offset: int
    previous_offset: int
    leader_epoch: int
    metadata: str


class _Topic(msgspec.Struct, gc=False):
    topic: str
    topic_id: str
    partitions: list[_Partition]


class _Commit(msgspec.Struct, gc=False):
    """A commit with names; the fields of ``event_codec.event_dict``, in its order."""

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


def event_lines(first_seq: int, payload: Payload) -> Iterator[EventLine]:
    """Yield the events of a row, numbered from ``first_seq``, each as a line with its newline."""
    stamp = Stamp(payload.log_id, payload.ts_ms, payload.clock_ms)
    seq = first_seq
    for item in payload.items:
        for batch in item.batches:
            for event in batch_events(batch.records, batch.events):
                if isinstance(event, OffsetsCommitted):
                    commit = _commit(stamp, seq, item.shard, item.lease_epoch, event)
                    yield EventLine(seq, event.group_id, _encode(commit) + b"\n")
                else:
                    rendered = event_dict(stamp, seq, item.shard, item.lease_epoch, event)
                    yield EventLine(seq, event.group, _encode(rendered) + b"\n")
                seq += 1


def _commit(
    stamp: Stamp, seq: int, shard: int, lease_epoch: int, commit: OffsetsCommitted
) -> _Commit:
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
        [_topic(topic) for topic in commit.topics],
        "classic" if commit.group_id else "",
    )


def _topic(topic: CommittedTopic) -> _Topic:
    rows = [
        _Partition(p.partition, p.offset, p.previous_offset, p.leader_epoch, p.metadata)
        for p in topic.partitions
    ]
    return _Topic(topic.topic, topic.topic_id, rows)
