"""The meaning of records in the simplest form: a flat dict of keys, where the last write wins.

It is independent of ``storage.keyed`` and the core's ``apply``, so that tests can check both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from groupkeeper.coordinator.core.records import (
    GroupConfigs,
    GroupRecord,
    GroupRemoved,
    OffsetsAdopted,
    OffsetsCommitted,
    OffsetsRemoved,
    PartitionEnd,
    Record,
    SavedGroup,
    SavedOffset,
    SavedOffsets,
    TopicRecord,
    TopicRemoved,
)

Key = tuple[Any, ...]


class RecordModel:
    """The keys that are set: ("group", shard, id), ("offset", shard, id, topic, partition), …"""

    def __init__(self) -> None:
        self.keys: dict[Key, Any] = {}

    def apply(self, shard: int, record: Record) -> None:  # noqa: C901 - one case a type
        match record:
            case GroupRecord():
                self.keys["group", shard, record.group_id] = record
            case OffsetsCommitted():
                self.keys.setdefault(("group", shard, record.group_id), None)
                for topic in record.topics:
                    for part in topic.partitions:
                        key = ("offset", shard, record.group_id, topic.topic, part.partition)
                        self.keys[key] = (
                            part.offset,
                            part.leader_epoch,
                            part.metadata,
                            record.commit_time_ms,
                            record.expire_time_ms,
                            topic.topic_id,
                        )
            case OffsetsRemoved():
                for topic_name, partition in record.partitions:
                    self.keys.pop(("offset", shard, record.group_id, topic_name, partition), None)
            case OffsetsAdopted():
                self._adopt(shard, record)
            case GroupRemoved():
                self._clear_group(shard, record.group_id)
            case SavedGroup():
                self._clear_group(shard, record.group_id)
                self.keys["group", shard, record.group_id] = record.metadata
                self._set_offsets(shard, record)
            case SavedOffsets():
                self.keys.setdefault(("group", shard, record.group_id), None)
                self._set_offsets(shard, record)
            case PartitionEnd():
                end_key = ("end", shard, record.topic_id, record.partition)
                self.keys[end_key] = record.end_offset
                if record.end_offset < 0:
                    del self.keys[end_key]
            case TopicRecord():
                self.keys["topic", shard, record.name] = (record.topic_id, record.partitions)
            case TopicRemoved():
                self.keys.pop(("topic", shard, record.name), None)
            case GroupConfigs():
                self.keys["configs", shard, record.group_id] = dict(record.configs)
                if not record.configs:
                    del self.keys["configs", shard, record.group_id]

    def apply_all(self, shard: int, records: Iterable[Record]) -> None:
        for record in records:
            self.apply(shard, record)

    def saved(self, shard: int, group_id: str) -> SavedGroup | None:
        """Return the state of a group as a fold writes it."""
        if ("group", shard, group_id) not in self.keys:
            return None
        offsets: dict[str, dict[int, SavedOffset]] = {}
        for key, value in self.keys.items():
            if key[:3] == ("offset", shard, group_id):
                offsets.setdefault(key[3], {})[key[4]] = SavedOffset(*value)
        return SavedGroup(group_id, self.keys["group", shard, group_id], offsets)

    def _adopt(self, shard: int, record: OffsetsAdopted) -> None:
        for topic in record.topics:
            for partition, _ in topic.partitions:
                key = ("offset", shard, record.group_id, topic.topic, partition)
                if key in self.keys and not self.keys[key][-1]:
                    self.keys[key] = (*self.keys[key][:-1], topic.topic_id)

    def _set_offsets(self, shard: int, record: SavedGroup | SavedOffsets) -> None:
        for topic_name, rows in record.offsets.items():
            for partition, saved in rows.items():
                key = ("offset", shard, record.group_id, topic_name, partition)
                self.keys[key] = msgspec.structs.astuple(saved)

    def _clear_group(self, shard: int, group_id: str) -> None:
        self.keys.pop(("group", shard, group_id), None)
        for key in [key for key in self.keys if key[:3] == ("offset", shard, group_id)]:
            del self.keys[key]
