"""Keeps the last value of each key from the records of one consumer group (pure)."""

from __future__ import annotations

from typing import Final, TypeAlias, get_args

import msgspec

from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ConsumerChange,
    ConsumerCurrentAssignment,
    ConsumerGroupEpoch,
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberFields,
    ConsumerMemberRemoved,
    ConsumerTarget,
    Partitions,
    PatternTopics,
    ResolvedPattern,
    SavedConsumerMember,
)
from groupkeeper.coordinator.core.records import GroupMetadata, GroupRecord

MetadataRecord: TypeAlias = GroupMetadata | ConsumerChange
METADATA_RECORDS: Final = (*get_args(GroupMetadata), *get_args(ConsumerChange))
"""The types of records that set or change a group, but not its offsets."""

_NOT_ASSIGNED = AssignedFields(0, 0, -1)
"""The assignment of a member that has none yet."""


class KeyedConsumerGroup:
    """The last record of each key of one consumer group, as Kafka's compaction keeps them."""

    def __init__(self, record: ConsumerGroupRecord) -> None:
        self._group_id = record.group_id
        self._epoch = record.epoch
        self._metadata_hash = record.metadata_hash
        self._target_epoch = record.target_epoch
        self._computed_ms = record.computed_ms
        self._members: dict[str, ConsumerMemberFields] = {}
        self._current: dict[str, AssignedFields] = {}
        self._targets: dict[str, Partitions] = {}
        self._patterns: dict[str, PatternTopics] = dict(record.patterns)
        for saved in record.members:
            member_id = saved.fields.member_id
            names = record.subscriptions[saved.subscription]
            self._members[member_id] = msgspec.structs.replace(
                saved.fields, subscribed_topic_names=names
            )
            self._current[member_id] = saved.current
            self._targets[member_id] = saved.target

    def apply(self, record: ConsumerChange) -> None:
        """Store the values that a record sets, and delete those that it removes."""
        match record:
            case ConsumerGroupEpoch():
                self._epoch = record.epoch
                self._metadata_hash = record.metadata_hash
            case ConsumerMember():
                self._members[record.member.member_id] = record.member
            case ConsumerMemberRemoved():
                self._members.pop(record.member_id, None)
                self._current.pop(record.member_id, None)
                self._targets.pop(record.member_id, None)
            case ConsumerTarget():
                self._target_epoch = record.epoch
                self._computed_ms = record.computed_ms
                self._targets.update(record.members)
            case ConsumerCurrentAssignment():
                self._current[record.member_id] = record.current
            case ResolvedPattern():
                if record.resolved is None:
                    self._patterns.pop(record.pattern, None)
                else:
                    self._patterns[record.pattern] = record.resolved

    def record(self) -> ConsumerGroupRecord:
        """Return the whole group as one record."""
        positions: dict[tuple[str, ...], int] = {}
        members = []
        for member_id, fields in self._members.items():
            names = fields.subscribed_topic_names
            members.append(
                SavedConsumerMember(
                    msgspec.structs.replace(fields, subscribed_topic_names=()),
                    positions.setdefault(names, len(positions)),
                    self._current.get(member_id, _NOT_ASSIGNED),
                    self._targets.get(member_id, {}),
                )
            )
        return ConsumerGroupRecord(
            self._group_id,
            self._epoch,
            self._metadata_hash,
            self._target_epoch,
            self._computed_ms,
            tuple(positions),
            tuple(members),
            dict(self._patterns),
        )


KeptMetadata: TypeAlias = GroupRecord | KeyedConsumerGroup | None
"""The metadata that is kept of a group of any type: everything except its offsets. None: the group
has only offsets."""


def kept_metadata(metadata: GroupMetadata | None) -> KeptMetadata:
    """Return the metadata of a record in a form to which later records can be applied."""
    return KeyedConsumerGroup(metadata) if isinstance(metadata, ConsumerGroupRecord) else metadata


def changed_metadata(before: KeptMetadata, record: MetadataRecord) -> KeptMetadata:
    """Apply a record to the kept metadata of a group, and return the result. ``before`` may be
    changed in place.
    """
    if isinstance(record, GroupRecord | ConsumerGroupRecord):
        return kept_metadata(record)
    if isinstance(before, KeyedConsumerGroup):
        before.apply(record)
    return before


def saved_metadata(metadata: KeptMetadata) -> GroupMetadata | None:
    """Convert kept metadata to the form in which a whole group is written. None stays None."""
    return metadata.record() if isinstance(metadata, KeyedConsumerGroup) else metadata
