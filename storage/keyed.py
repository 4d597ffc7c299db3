"""Keeps the last value of each key from a sequence of records (pure).

A record sets or clears keys, and the last write of a key is valid (``coordinator.core.records``). A
backend may keep only these last values. They must lead to the same state as all records do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from groupkeeper.coordinator.core.consumer_records import ConsumerChange, ConsumerGroupRecord
from groupkeeper.coordinator.core.records import (
    AdoptionMark,
    CommittedRow,
    GroupConfigs,
    GroupRecord,
    GroupRemoved,
    JournalPosition,
    ListenerPort,
    OffsetsAdopted,
    OffsetsCommitted,
    OffsetsRemoved,
    PartitionEnd,
    PendingEnded,
    PendingOffsets,
    Record,
    SavedGroup,
    SavedOffset,
    SavedOffsets,
    TopicRecord,
    TopicRemoved,
    UpstreamId,
)
from groupkeeper.storage.keyed_consumer import (
    KeptMetadata,
    changed_metadata,
    kept_metadata,
    saved_metadata,
)

_K = TypeVar("_K")
_R = TypeVar("_R")


class _Group:
    __slots__ = ("metadata", "offsets")

    def __init__(self) -> None:
        self.metadata: KeptMetadata = None
        self.offsets: dict[str, dict[int, SavedOffset]] = {}


class KeyedRecords:
    """The records of one shard, reduced to the last value of each key."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._ends: dict[tuple[str, int], PartitionEnd] = {}
        self._topics: dict[str, TopicRecord] = {}
        self._configs: dict[str, GroupConfigs] = {}
        self._ports: dict[int, ListenerPort] = {}
        self._pendings: dict[str, PendingOffsets] = {}
        self._journal: JournalPosition | None = None
        self._adoptions: dict[str, AdoptionMark] = {}
        self._upstream: list[UpstreamId] = []

    def apply(self, record: Record) -> None:  # noqa: C901, PLR0912, PLR0915 - one case a type
        """Set or clear the keys of a record."""
        match record:
            case OffsetsCommitted():
                self._commit(record)
            case SavedGroup():
                group = self._groups[record.group_id] = _Group()
                group.metadata = kept_metadata(record.metadata)
                group.offsets = {topic: dict(rows) for topic, rows in record.offsets.items()}
            case SavedOffsets():
                offsets = self._groups.setdefault(record.group_id, _Group()).offsets
                for topic, rows in record.offsets.items():
                    offsets.setdefault(topic, {}).update(rows)
            case GroupRemoved():
                self._groups.pop(record.group_id, None)
            case OffsetsRemoved():
                self._remove_offsets(record)
            case OffsetsAdopted():
                self._adopt(record)
            case PartitionEnd():
                key = (record.topic_id, record.partition)
                _set(self._ends, key, record if record.end_offset >= 0 else None)
            case TopicRecord():
                self._topics[record.name] = record
            case TopicRemoved():
                self._topics.pop(record.name, None)
            case GroupConfigs():
                _set(self._configs, record.group_id, record if record.configs else None)
            case ListenerPort():
                _set(self._ports, record.broker_id, record if record.port else None)
            case PendingOffsets():
                self._pendings[record.pending_id] = record
            case PendingEnded():
                self._pendings.pop(record.pending_id, None)
            case JournalPosition():
                self._journal = record
            case AdoptionMark():
                _set(self._adoptions, record.group_id, record if record.state else None)
            case UpstreamId():
                self._upstream = [record]
            case GroupRecord() | ConsumerGroupRecord():
                self._groups.setdefault(record.group_id, _Group()).metadata = kept_metadata(record)
            case _:
                self._change(record)

    def records(self) -> Iterator[Record]:
        """Yield the smallest sequence of records that leads to the same state."""
        yield from self._topics.values()
        yield from self._configs.values()
        yield from self._ports.values()
        yield from self._upstream
        yield from self._ends.values()
        yield from self._pendings.values()
        yield from self._adoptions.values()
        if self._journal is not None:
            yield self._journal
        for group_id in self._groups:
            saved = self.saved(group_id)
            assert saved is not None
            yield saved

    def saved(self, group_id: str) -> SavedGroup | None:
        """Return a copy of a group's state; None if the group does not exist."""
        group = self._groups.get(group_id)
        if group is None:
            return None
        offsets = {topic: dict(rows) for topic, rows in group.offsets.items()}
        return SavedGroup(group_id, saved_metadata(group.metadata), offsets)

    def offset(self, group_id: str, topic: str, partition: int) -> SavedOffset | None:
        """Return the committed offset of one partition; None if there is none."""
        group = self._groups.get(group_id)
        return None if group is None else group.offsets.get(topic, {}).get(partition)

    def _change(self, record: ConsumerChange) -> None:
        group = self._groups.get(record.group_id)
        if group is not None:
            group.metadata = changed_metadata(group.metadata, record)

    def _commit(self, record: OffsetsCommitted) -> None:
        group = self._groups.get(record.group_id)
        if group is None:
            group = self._groups[record.group_id] = _Group()
        offsets = group.offsets
        commit_time_ms: Any = record.commit_time_ms
        expire_time_ms: Any = record.expire_time_ms
        saved_offset: Any = SavedOffset  # a local name: mypyc looks up a global one at each use
        for topic in record.topics:
            rows = offsets.setdefault(topic.topic, {})
            topic_id = topic.topic_id
            committed: list[CommittedRow] = topic.partitions
            for partition, offset, _, leader_epoch, metadata in committed:
                rows[partition] = saved_offset(
                    offset, leader_epoch, metadata, commit_time_ms, expire_time_ms, topic_id
                )

    def topic_id(self, name: str) -> str:
        """Return the id of a topic; "" if there is no topic of that name."""
        topic = self._topics.get(name)
        return "" if topic is None else topic.topic_id

    def _adopt(self, record: OffsetsAdopted) -> None:
        group = self._groups.get(record.group_id)
        if group is None:
            return
        for topic in record.topics:
            rows = group.offsets.get(topic.topic, {})
            for partition, _ in topic.partitions:
                stored = rows.get(partition)
                if stored is not None and not stored.topic_id:
                    rows[partition] = stored.of_topic(topic.topic_id)

    def _remove_offsets(self, record: OffsetsRemoved) -> None:
        group = self._groups.get(record.group_id)
        if group is None:
            return
        for topic, partition in record.partitions:
            rows = group.offsets.get(topic, {})
            rows.pop(partition, None)
            if not rows:
                group.offsets.pop(topic, None)


def _set(records: dict[_K, _R], key: _K, record: _R | None) -> None:
    if record is None:
        records.pop(key, None)
    else:
        records[key] = record
