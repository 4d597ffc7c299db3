"""Turns records into messages of a compacted topic in the format of ``__consumer_offsets`` (pure).

A message with a value sets its key. A message without a value clears its key. ``ShardKeys`` knows
which keys of a group are set, because the removal of a group has to clear each of them. ``loaded``
does the reverse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from groupkeeper.coordinator.core.consumer_records import (
    ConsumerChange,
    ConsumerCurrentAssignment,
    ConsumerGroupEpoch,
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberFields,
    ConsumerMemberRemoved,
    ConsumerTarget,
    ResolvedPattern,
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
from groupkeeper.protocol import offsets_topic_bytes as wire
from groupkeeper.protocol.offsets_topic import MemberValue
from groupkeeper.storage.backends.kafka_topic import own
from groupkeeper.storage.base import ShardAppend
from groupkeeper.storage.codec.records import encode_record, own_key

Message: TypeAlias = tuple[bytes, bytes | None]
"""The key and the value of a message. None clears the key."""

_MEMBER_TYPES: Final = (wire.CONSUMER_MEMBER, wire.CONSUMER_MEMBER_TARGET, wire.CONSUMER_CURRENT)


def reads_groups(item: ShardAppend) -> bool:
    """Return True if the messages of an append depend on the present state of its groups."""
    return any(
        isinstance(record, OffsetsAdopted) for batch in item.batches for record in batch.records
    )


class _GroupKeys:
    """The keys of one group for which the topic has a value, so that they can be cleared."""

    __slots__ = ("offsets", "others")

    def __init__(self) -> None:
        self.offsets: dict[str, set[int]] = {}
        """Topic -> the partitions whose offsets are set."""
        self.others: set[bytes] = set()
        """All keys except those of offsets."""


class ShardKeys:
    """Knows which keys of one shard are set. Converts records to messages that set and clear
    keys.
    """

    def __init__(self) -> None:
        self._groups: dict[str, _GroupKeys] = {}

    # --- what a load found ------------------------------------------------------------------------

    def found(self, group_id: str, key: bytes) -> None:
        """Record that a load found this key of a group. It is not the key of an offset."""
        self._of(group_id).others.add(key)

    def found_offset(self, group_id: str, topic: str, partition: int) -> None:
        """Record that the key of this offset is set."""
        self._of(group_id).offsets.setdefault(topic, set()).add(partition)

    # --- what an append writes --------------------------------------------------------------------

    def messages(self, item: ShardAppend) -> Iterator[Message]:
        """Yield the messages of the records of an append, in order. Also record the keys that these
        messages set and clear.
        """
        for batch in item.batches:
            for record in batch.records:
                yield from self._messages(record, item)

    def _messages(self, record: Record, item: ShardAppend) -> Iterable[Message]:
        match record:
            case OffsetsCommitted():
                return self._commit(record)
            case GroupRecord() | ConsumerGroupRecord():
                return self._set_metadata(record.group_id, record)
            case GroupRemoved():
                return self._remove(record.group_id)
            case OffsetsRemoved():
                return self._remove_offsets(record)
            case OffsetsAdopted():
                return self._adopt(record, item)
            case SavedGroup():
                return self._save(record)
            case SavedOffsets():
                return self._set_offsets(record.group_id, record.offsets)
            case (
                PartitionEnd()
                | TopicRecord()
                | TopicRemoved()
                | GroupConfigs()
                | ListenerPort()
                | PendingOffsets()
                | PendingEnded()
                | JournalPosition()
                | AdoptionMark()
                | UpstreamId()
            ):
                name, is_set = own_key(record)
                return [(own.record_key(name), encode_record(record) if is_set else None)]
            case _:
                return self._change(record)

    def _commit(self, record: OffsetsCommitted) -> Iterator[Message]:
        group, group_id = self._of(record.group_id), record.group_id
        for topic in record.topics:
            known = group.offsets.setdefault(topic.topic, set())
            to_key = partial(wire.partition_key, wire.key_bytes(wire.OFFSET, group_id, topic.topic))
            value = own.OffsetValues(
                topic.topic_id, record.commit_time_ms, record.expire_time_ms
            ).value
            for partition, offset, _, leader_epoch, metadata in topic.partitions:
                known.add(partition)
                yield to_key(partition), value(offset, leader_epoch, metadata)
        yield from self._kept(group_id)

    def _set_offsets(
        self, group_id: str, offsets: dict[str, dict[int, SavedOffset]]
    ) -> Iterator[Message]:
        group = self._of(group_id)
        for topic, rows in offsets.items():
            group.offsets.setdefault(topic, set()).update(rows)
            for partition, saved in rows.items():
                yield wire.offset_key(group_id, topic, partition), own.offset_value(saved)
        yield from self._kept(group_id)

    def _save(self, record: SavedGroup) -> Iterator[Message]:
        yield from self._remove(record.group_id)
        if record.metadata is not None:
            yield from self._set_metadata(record.group_id, record.metadata)
        yield from self._set_offsets(record.group_id, record.offsets)

    def _set_metadata(
        self, group_id: str, record: GroupRecord | ConsumerGroupRecord
    ) -> Iterator[Message]:
        """Yield the messages that set the metadata of a group and clear its other earlier keys."""
        written = [_classic(record)] if isinstance(record, GroupRecord) else [*_consumer(record)]
        group = self._of(group_id)
        new = {key for key, _ in written}
        for key in group.others - new:
            yield key, None
        group.others = new
        yield from written

    def _change(self, record: ConsumerChange) -> Iterable[Message]:
        """Return the messages that change a part of a consumer group; none if there is no such
        group.
        """
        group_id = record.group_id
        group = self._groups.get(group_id)
        if group is None or not own.is_consumer_group(group_id, group.others):
            return []
        messages = [*_changes(record)]
        for key, value in messages:
            if value is None:
                group.others.discard(key)
            else:
                group.others.add(key)
        return messages

    def _remove(self, group_id: str) -> Iterator[Message]:
        group = self._groups.pop(group_id, None)
        if group is None:
            return
        for topic, partitions in group.offsets.items():
            for partition in partitions:
                yield wire.offset_key(group_id, topic, partition), None
        for key in group.others:
            yield key, None

    def _remove_offsets(self, record: OffsetsRemoved) -> Iterator[Message]:
        group = self._groups.get(record.group_id)
        if group is None:
            return
        for topic, partition in record.partitions:
            partitions = group.offsets.get(topic, set())
            if partition in partitions:
                partitions.discard(partition)
                yield wire.offset_key(record.group_id, topic, partition), None
            if not partitions:
                group.offsets.pop(topic, None)
        yield from self._kept(record.group_id)

    def _adopt(self, record: OffsetsAdopted, item: ShardAppend) -> Iterator[Message]:
        """Yield messages that write the offsets with their topic id. The other values of the
        offsets are those after this append. A later record of the append may write the same values
        again.
        """
        saved = item.saved(record.group_id)
        if saved is None:
            return
        for topic in record.topics:
            rows = saved.offsets.get(topic.topic, {})
            for partition, _ in topic.partitions:
                if partition in rows:
                    self.found_offset(record.group_id, topic.topic, partition)
                    key = wire.offset_key(record.group_id, topic.topic, partition)
                    yield key, own.offset_value(rows[partition])

    def _kept(self, group_id: str) -> list[Message]:
        """Return the message that keeps a group without any other key. Return none if the group has
        a key.
        """
        group = self._of(group_id)
        if group.others or any(group.offsets.values()):
            return []
        key = own.empty_group_key(group_id)
        group.others.add(key)
        return [(key, b"{}")]

    def _of(self, group_id: str) -> _GroupKeys:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = _GroupKeys()
        return group


# --- groups -> messages ---------------------------------------------------------------------------


class _Set(NamedTuple):
    key: bytes
    value: bytes


def _classic(record: GroupRecord) -> _Set:
    members = [
        MemberValue(
            member.member_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.subscription,
            member.assignment,
            member.group_instance_id,
            member.rebalance_timeout_ms,
        )
        for member in record.members
    ]
    value = wire.GroupBytes(
        record.protocol_type or "",
        record.generation_id,
        record.protocol_name,
        record.leader_id,
        record.state_timestamp_ms,
        members,
        own.NO_PROTOCOL_TYPE if record.protocol_type is None else b"",
    )
    return _Set(wire.key_bytes(wire.GROUP, record.group_id), wire.group_value(value))


def _consumer(record: ConsumerGroupRecord) -> Iterator[_Set]:
    """Yield the messages of a whole consumer group."""
    group_id = record.group_id
    yield _epoch(wire.CONSUMER_GROUP, group_id, record.epoch, own.signed(record.metadata_hash))
    yield _epoch(wire.CONSUMER_TARGET, group_id, record.target_epoch, record.computed_ms)
    for saved in record.members:
        member_id, names = saved.fields.member_id, record.subscriptions[saved.subscription]
        yield _member(group_id, saved.fields, names)
        yield _target(group_id, member_id, saved.target)
        yield _current(group_id, ConsumerCurrentAssignment(group_id, member_id, saved.current))
    for pattern, topics in record.patterns.items():
        yield _Set(
            wire.key_bytes(wire.CONSUMER_PATTERN, group_id, pattern),
            wire.pattern_value(topics.topics, topics.topics_version, topics.resolved_ms),
        )


def _changes(record: ConsumerChange) -> Iterator[Message]:
    """Yield the messages of a change of a consumer group."""
    match record:
        case ConsumerGroupEpoch():
            tagged = own.signed(record.metadata_hash)
            yield _epoch(wire.CONSUMER_GROUP, record.group_id, record.epoch, tagged)
        case ConsumerMember():
            fields = record.member
            yield _member(record.group_id, fields, fields.subscribed_topic_names)
        case ConsumerMemberRemoved():
            for record_type in _MEMBER_TYPES:
                yield wire.key_bytes(record_type, record.group_id, record.member_id), None
        case ConsumerTarget():
            group_id = record.group_id
            yield _epoch(wire.CONSUMER_TARGET, group_id, record.epoch, record.computed_ms)
            for member_id, partitions in record.members.items():
                yield _target(group_id, member_id, partitions)
        case ConsumerCurrentAssignment():
            yield _current(record.group_id, record)
        case ResolvedPattern():
            key = wire.key_bytes(wire.CONSUMER_PATTERN, record.group_id, record.pattern)
            topics = record.resolved
            if topics is None:
                yield key, None
            else:
                yield (
                    key,
                    wire.pattern_value(topics.topics, topics.topics_version, topics.resolved_ms),
                )


def _epoch(record_type: int, group_id: str, epoch: int, tagged: int) -> _Set:
    return _Set(wire.key_bytes(record_type, group_id), wire.epoch_value(epoch, tagged))


def _member(group_id: str, fields: ConsumerMemberFields, names: tuple[str, ...]) -> _Set:
    classic = fields.classic
    value = wire.MemberBytes(
        fields.group_instance_id,
        fields.rack_id,
        fields.client_id,
        fields.client_host,
        names,
        fields.subscribed_topic_regex,
        fields.rebalance_timeout_ms,
        fields.server_assignor,
        None
        if classic is None
        else (
            classic.session_timeout_ms,
            [(protocol.name, protocol.metadata) for protocol in classic.protocols],
        ),
    )
    key = wire.key_bytes(wire.CONSUMER_MEMBER, group_id, fields.member_id)
    return _Set(key, wire.member_value(value))


def _target(group_id: str, member_id: str, partitions: dict[str, tuple[int, ...]]) -> _Set:
    key = wire.key_bytes(wire.CONSUMER_MEMBER_TARGET, group_id, member_id)
    return _Set(key, wire.target_value(partitions))


def _current(group_id: str, record: ConsumerCurrentAssignment) -> _Set:
    current = record.current
    value = wire.CurrentBytes(
        current.epoch, current.previous_epoch, current.state, current.assigned, current.revoking
    )
    key = wire.key_bytes(wire.CONSUMER_CURRENT, group_id, record.member_id)
    return _Set(key, wire.current_value(value))
