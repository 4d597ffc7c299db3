"""Converts the newest message of each key of a shard to records: the reverse of ``written``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ClassicProtocol,
    ClassicSession,
    ConsumerChange,
    ConsumerCurrentAssignment,
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberFields,
    ConsumerTarget,
    PatternTopics,
    ResolvedPattern,
)
from groupkeeper.coordinator.core.records import (
    GroupMetadata,
    GroupRecord,
    Record,
    SavedGroup,
    SavedMember,
    SavedOffset,
    SavedOffsets,
)
from groupkeeper.protocol import offsets_topic_bytes as wire
from groupkeeper.protocol.offsets_topic import RecordError
from groupkeeper.storage.backends.group_parts import (
    MAX_PART_BYTES,
    GroupWalk,
    is_one_part,
)
from groupkeeper.storage.backends.kafka_topic import own
from groupkeeper.storage.backends.kafka_topic.written import ShardKeys
from groupkeeper.storage.base import StorageError, StoreRefused
from groupkeeper.storage.codec.records import UNREADABLE, decode_record
from groupkeeper.storage.keyed_consumer import KeyedConsumerGroup
from groupkeeper.storage.turns import in_turns

KEYS_A_TURN: Final = 500
"""The number of keys that are read before other tasks of the loop can run. An offset takes up to 9
us."""

decode_end: Final = msgspec.json.Decoder(own.ShardLogEnd).decode


class _Found:
    """The messages of one group, as they were read."""

    __slots__ = ("offsets", "parts")

    def __init__(self) -> None:
        self.offsets: dict[str, dict[int, SavedOffset]] = {}
        self.parts: list[tuple[int, list[str], bytes]] = []
        """The type, the names and the value of each key that is not the key of an offset."""


async def load_shard(newest: Mapping[bytes, bytes], place: str) -> LoadedShard:
    """Decode the newest values of a shard, by key. Other tasks of the loop run in between.

    Raises StoreRefused if a value cannot be read. ``place`` names the partition, for messages.
    """
    loaded = LoadedShard(place)
    async for key, value in in_turns(newest.items(), KEYS_A_TURN):
        loaded.add(key, value)
    return loaded


class LoadedShard:
    """The records of one shard, made from the messages that a load reads."""

    def __init__(self, place: str) -> None:
        """``place`` names the partition, for errors."""
        self.keys = ShardKeys()
        self.log_end: own.ShardLogEnd | None = None
        self._groups: dict[str, _Found] = {}
        self._records: list[Record] = []
        self._place = place

    def add(self, key: bytes, value: bytes) -> None:
        """Add the newest value of a key. Raises StoreRefused if it cannot be read."""
        try:
            self._add(key, value)
        except (RecordError, StorageError, *UNREADABLE) as error:
            raise StoreRefused(f"{self._place}: key {key!r} cannot be read: {error}") from error

    def records(self) -> Iterator[Record]:
        """Yield the records that lead to this state. Raises StoreRefused if a group cannot be
        read.
        """
        yield from self._records
        for group_id, found in self._groups.items():
            try:
                metadata = _metadata(group_id, found.parts)
            except (RecordError, KeyError, *UNREADABLE) as error:
                raise StoreRefused(
                    f"{self._place}: group {group_id!r} cannot be read: {error}"
                ) from error
            group = SavedGroup(group_id, metadata, found.offsets)
            if is_one_part(group, MAX_PART_BYTES):
                yield group
                continue
            # To apply all offsets of such a group at once would block the loop for too long.
            yield SavedGroup(group_id, metadata, {})
            walk = GroupWalk()
            while not walk.is_done:
                yield SavedOffsets(group_id, walk.take(group, MAX_PART_BYTES))

    def _add(self, key: bytes, value: bytes) -> None:
        record_type = int.from_bytes(key[:2], "big")
        if record_type == own.RECORD:
            self._records.append(decode_record(value))
        elif record_type == own.LOG_END:
            self.log_end = decode_end(value)
        else:
            self._add_of_group(key, value)

    def _add_of_group(self, key: bytes, value: bytes) -> None:
        record_type, names, number = wire.read_key(key)
        if not names:
            raise RecordError(f"a key of type {record_type}")
        group_id = names[0]
        found = self._groups.get(group_id)
        if found is None:
            found = self._groups[group_id] = _Found()
        if record_type in wire.OFFSET_TYPES:
            found.offsets.setdefault(names[1], {})[number] = own.read_offset(value)
            self.keys.found_offset(group_id, names[1], number)
        else:
            found.parts.append((record_type, names, value))
            self.keys.found(group_id, key)


def _metadata(group_id: str, parts: list[tuple[int, list[str], bytes]]) -> GroupMetadata | None:
    by_type: dict[int, list[tuple[str, bytes]]] = {}
    for record_type, names, value in parts:
        by_type.setdefault(record_type, []).append((names[-1], value))
    if wire.GROUP in by_type:
        return _classic(group_id, by_type[wire.GROUP][0][1])
    if wire.CONSUMER_GROUP not in by_type:
        return None
    epoch, metadata_hash = wire.read_epoch(by_type[wire.CONSUMER_GROUP][0][1])
    group = KeyedConsumerGroup(ConsumerGroupRecord(group_id, epoch, own.unsigned(metadata_hash)))
    target_epoch, computed_ms = wire.read_epoch(by_type[wire.CONSUMER_TARGET][0][1])
    group.apply(ConsumerTarget(group_id, target_epoch, computed_ms, {}))
    for record_type, read in _PARTS.items():
        for name, value in by_type.get(record_type, ()):
            group.apply(read(group_id, name, value, (target_epoch, computed_ms)))
    return group.record()


def _classic(group_id: str, value: bytes) -> GroupRecord:
    found = wire.read_group(value)
    return GroupRecord(
        group_id,
        None if found.ours == own.NO_PROTOCOL_TYPE else found.protocol_type,
        found.generation,
        found.protocol,
        found.leader,
        found.state_time_ms,
        tuple(
            SavedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout,
                member.session_timeout,
                member.subscription,
                member.assignment,
            )
            for member in found.members
        ),
    )


def _member(group_id: str, member_id: str, value: bytes, _: Any) -> ConsumerChange:
    found = wire.read_member(value)
    classic = found.classic
    session = None
    if classic is not None:
        protocols = tuple(ClassicProtocol(*each) for each in classic[1])
        session = ClassicSession(classic[0], protocols)
    fields = ConsumerMemberFields(
        member_id,
        found.instance_id,
        found.rack_id,
        found.client_id,
        found.client_host,
        found.rebalance_timeout_ms,
        tuple(found.topic_names),
        found.topic_regex,
        found.server_assignor,
        session,
    )
    return ConsumerMember(group_id, fields)


def _target(group_id: str, member_id: str, value: bytes, epoch: tuple[int, int]) -> ConsumerChange:
    return ConsumerTarget(group_id, *epoch, {member_id: wire.read_target(value)})


def _current(group_id: str, member_id: str, value: bytes, _: Any) -> ConsumerChange:
    found = wire.read_current(value)
    fields = AssignedFields(
        found.state,
        found.epoch,
        found.previous_epoch,
        {topic_id: tuple(pairs) for topic_id, pairs in found.assigned.items()},
        {topic_id: tuple(pairs) for topic_id, pairs in found.revoking.items()},
    )
    return ConsumerCurrentAssignment(group_id, member_id, fields)


def _pattern(group_id: str, pattern: str, value: bytes, _: Any) -> ConsumerChange:
    topics, version, resolved_ms = wire.read_pattern(value)
    return ResolvedPattern(group_id, pattern, PatternTopics(tuple(topics), version, resolved_ms))


_PARTS: Final = {
    wire.CONSUMER_MEMBER: _member,
    wire.CONSUMER_MEMBER_TARGET: _target,
    wire.CONSUMER_CURRENT: _current,
    wire.CONSUMER_PATTERN: _pattern,
}
"""The functions that read the parts of a consumer group, by record type. Members are applied first.
"""
