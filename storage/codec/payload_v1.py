"""Decode payloads of format version 1, which groupkeeper wrote before 2026-11-22 (pure).

Only commits differ from version 2. In version 1 their fields have the core's names (``group_id``,
not ``group``), and a topic is a list of its values without field names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.records import (
    CommittedPartition,
    CommittedTopic,
    OffsetsCommitted,
    OtherRecord,
    Record,
)
from groupkeeper.storage.base import Batch


class _Topic(msgspec.Struct, array_like=True):
    topic: str
    topic_id: str
    partitions: list[CommittedPartition]


class _Commit(msgspec.Struct, tag="commit", tag_field="record"):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    principal: str
    commit_time_ms: int
    expire_time_ms: int
    topics: list[_Topic]


class _Batch(msgspec.Struct):
    records: Sequence[_Commit | OtherRecord]
    events: Sequence[Event]


_decode: Final = msgspec.json.Decoder(list[_Batch]).decode


def batches_of(data: bytes | msgspec.Raw) -> list[Batch]:
    """Decode the batches of one shard as the core's types. Raises ``msgspec.DecodeError``."""
    return [Batch([_record(r) for r in b.records], b.events) for b in _decode(data)]


def _record(record: _Commit | OtherRecord) -> Record:
    if not isinstance(record, _Commit):
        return record
    return OffsetsCommitted(
        record.group_id,
        record.generation_id,
        record.member_id,
        record.group_instance_id,
        record.client_id,
        record.client_host,
        record.principal,
        record.commit_time_ms,
        record.expire_time_ms,
        [CommittedTopic(t.topic, t.topic_id, t.partitions) for t in record.topics],
    )
