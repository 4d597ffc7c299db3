"""The meaning of records in the simplest form: a flat dict of keys, where the last write wins.

It is independent of ``storage.keyed`` and the core's ``apply``, so that tests can check both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ConsumerCurrentAssignment,
    ConsumerGroupEpoch,
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberRemoved,
    ConsumerTarget,
    ResolvedPattern,
    SavedConsumerMember,
)
from groupkeeper.coordinator.core.records import (
    AdoptionMark,
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

Key = tuple[Any, ...]
CONSUMER = "a consumer group"
"""The value of the key of a consumer group, whose members have separate keys."""
NOT_ASSIGNED = AssignedFields(0, 0, -1)


class RecordModel:
    """The keys that are set: ("group", shard, id), ("offset", shard, id, topic, partition),
    ("consumer", shard, id, "member", member id), …
    """

    def __init__(self) -> None:
        self.keys: dict[Key, Any] = {}

    def apply(self, shard: int, record: Record) -> None:  # noqa: C901 - one case a type
        match record:
            case GroupRecord() | ConsumerGroupRecord():
                self._set_metadata(shard, record.group_id, record)
            case OffsetsCommitted():
                self.keys.setdefault(("group", shard, record.group_id), None)
                for topic in record.topics:
                    for partition, offset, _, leader_epoch, metadata in topic.partitions:
                        key = ("offset", shard, record.group_id, topic.topic, partition)
                        self.keys[key] = (
                            offset,
                            leader_epoch,
                            metadata,
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
                self._set_metadata(shard, record.group_id, record.metadata)
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
            case UpstreamId():
                self.keys["upstream", shard] = record.cluster_id
            case ListenerPort():
                self.keys["port", shard, record.broker_id] = record.port
                if not record.port:
                    del self.keys["port", shard, record.broker_id]
            case PendingOffsets():
                self.keys["pending", shard, record.pending_id] = record
            case PendingEnded():
                self.keys.pop(("pending", shard, record.pending_id), None)
            case AdoptionMark():
                self.keys["adoption", shard, record.group_id] = record
                if not record.state:
                    del self.keys["adoption", shard, record.group_id]
            case JournalPosition():
                self.keys["journal", shard] = record
            case _:
                if self.keys.get(("group", shard, record.group_id)) == CONSUMER:
                    self._change(("consumer", shard, record.group_id), record)

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
        metadata = self.keys["group", shard, group_id]
        if metadata == CONSUMER:
            metadata = self._consumer_group(("consumer", shard, group_id))
        return SavedGroup(group_id, metadata, offsets)

    def _set_metadata(self, shard: int, group_id: str, record: Any) -> None:
        group = ("consumer", shard, group_id)
        self._clear_below(group)
        self.keys["group", shard, group_id] = record
        if isinstance(record, ConsumerGroupRecord):
            self.keys["group", shard, group_id] = CONSUMER
            self.keys[*group, "epoch"] = (record.epoch, record.metadata_hash)
            self.keys[*group, "target"] = (record.target_epoch, record.computed_ms)
            for each in record.members:
                member_id = each.fields.member_id
                names = record.subscriptions[each.subscription]
                fields = msgspec.structs.replace(each.fields, subscribed_topic_names=names)
                self.keys[*group, "member", member_id] = fields
                self.keys[*group, "current", member_id] = each.current
                self.keys[*group, "target", member_id] = each.target
            for pattern, resolved in record.patterns.items():
                self.keys[*group, "pattern", pattern] = resolved

    def _change(self, group: Key, record: Any) -> None:
        match record:
            case ConsumerGroupEpoch():
                self.keys[*group, "epoch"] = (record.epoch, record.metadata_hash)
            case ConsumerMember():
                member_id = record.member.member_id
                self.keys[*group, "member", member_id] = record.member
                self.keys.setdefault((*group, "current", member_id), NOT_ASSIGNED)
                self.keys.setdefault((*group, "target", member_id), {})
            case ConsumerMemberRemoved():
                for what in ("member", "current", "target"):
                    self.keys.pop((*group, what, record.member_id), None)
            case ConsumerTarget():
                self.keys[*group, "target"] = (record.epoch, record.computed_ms)
                for member_id, target in record.members.items():
                    self.keys[*group, "target", member_id] = target
            case ConsumerCurrentAssignment():
                self.keys[*group, "current", record.member_id] = record.current
            case ResolvedPattern():
                self.keys.pop((*group, "pattern", record.pattern), None)
                if record.resolved is not None:
                    self.keys[*group, "pattern", record.pattern] = record.resolved

    def _consumer_group(self, group: Key) -> ConsumerGroupRecord:
        def below(what: str) -> dict[str, Any]:
            return {key[4]: v for key, v in self.keys.items() if key[:4] == (*group, what) != key}

        fields, currents, targets = below("member"), below("current"), below("target")
        return ConsumerGroupRecord(
            group[2],
            *self.keys[*group, "epoch"],
            *self.keys[*group, "target"],
            tuple(each.subscribed_topic_names for each in fields.values()),
            tuple(
                SavedConsumerMember(
                    msgspec.structs.replace(each, subscribed_topic_names=()),
                    position,
                    currents[member_id],
                    targets[member_id],
                )
                for position, (member_id, each) in enumerate(fields.items())
            ),
            below("pattern"),
        )

    def _clear_below(self, group: Key) -> None:
        for key in [key for key in self.keys if key[: len(group)] == group]:
            del self.keys[key]

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
        self._clear_below(("offset", shard, group_id))
        self._clear_below(("consumer", shard, group_id))
