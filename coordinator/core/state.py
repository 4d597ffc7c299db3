"""The state that the core's functions change: the groups of a shard, and the current step.

This file is long because it applies every type of record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from groupkeeper.coordinator.core.cluster.group_configs import NO_OVERRIDES, GroupOverrides
from groupkeeper.coordinator.core.cluster.image import ANY_PARTITION, TopicImage, TopicInfo
from groupkeeper.coordinator.core.compiling import mypyc_attr
from groupkeeper.coordinator.core.consumer_records import CONSUMER_CHANGES, ConsumerGroupRecord
from groupkeeper.coordinator.core.deadlines import Deadline, DeadlineKind, Deadlines
from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.groups.adoptions import Adoptions
from groupkeeper.coordinator.core.groups.census import (
    SMALL_ASSIGNMENT_BYTES,
    SMALL_METADATA_BYTES,
    Census,
    Tally,
)
from groupkeeper.coordinator.core.groups.group import (
    SAVED_OFFSET_BYTES,
    Group,
    Member,
    text_bytes,
    topic_bytes,
)
from groupkeeper.coordinator.core.groups.lost_offsets import StoredOffset
from groupkeeper.coordinator.core.groups.pendings import Pendings
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import (
    PENDING_RECORDS,
    AdoptedTopic,
    AdoptionMark,
    CommittedRow,
    GroupRecord,
    GroupRemoved,
    OffsetsAdopted,
    OffsetsCommitted,
    OffsetsRemoved,
    PartitionEnd,
    PendingEnded,
    Record,
    SavedGroup,
    SavedOffset,
    SavedOffsets,
)
from groupkeeper.coordinator.core.step import SMALL_RECORD_BYTES, Reply, Step, Ticket
from groupkeeper.coordinator.core.work import Work

REMOVED_OFFSET_BYTES: Final = 40
"""The approximate size that a topic and a partition add to a record."""


@mypyc_attr(allow_interpreted_subclasses=True)  # simulated worlds subclass it
class ShardState:
    """The groups, topics and deadlines of one shard. ``now`` and ``step`` belong to the current
    call.
    """

    def __init__(
        self,
        shard_id: int,
        limits: CoreLimits,
        image: TopicImage,
        census: Census | None = None,
        *,
        are_topics_stored: bool = True,
    ) -> None:
        """Start without groups. ``census`` has the limits that all shards of a coordinator share.
        Without one, this shard has its own limits.

        If ``are_topics_stored`` is False, a topic that this process does not know may still exist.
        So the offsets of missing topics are kept.
        """
        self.are_topics_stored = are_topics_stored
        self.shard_id = shard_id
        self.census = census or Census(limits.max_groups, limits.max_metadata_bytes)
        self.tally = Tally()
        self.limits = limits
        self.image = image
        self.groups: dict[str, Group] = {}
        self.pendings = Pendings()
        """The offsets of open transactions. Always empty in static mode."""
        self.adoptions = Adoptions()
        """The marks of groups whose adoption from the upstream has begun, or must not begin. Always
        empty in static mode.
        """
        self.offsets_held = 0
        """Committed offsets of all groups, counted in ``apply`` so that a scrape of metrics need
        not iterate over them.
        """
        self.overrides: Mapping[str, GroupOverrides] = {}
        """Group id -> the configs of the group. All other groups follow ``limits``."""
        self.deadlines = Deadlines(limits.heartbeat_check_interval_ms)
        self.retention = Deadline(DeadlineKind.RETENTION, ("", ""))
        self.sweep = Deadline(DeadlineKind.SWEEP, ("", ""))
        self.retention_left: list[str] = []
        """Groups that the current retention pass has not examined yet."""
        self.sweep_left: list[str] = []
        """Groups that the current sweep has not examined yet. A sweep deletes the offsets of
        deleted topics, and adds missing topic ids.
        """
        self.deleted_topics: set[str] = set()
        """Names of the topics that were deleted since the last sweep ended."""
        self.deleted_names: dict[str, str] = {}
        """Topic id -> name of the topics that were deleted last, for events. At most
        ``MAX_DELETED_NAMES``, all deleted since the load.
        """
        self.names_without_id: set[str] = set()
        """Names of topics whose stored offsets may have no topic id. A host without topics stores
        such offsets.
        """
        self.ends_by_topic: dict[str, dict[int, int]] = {}
        """Topic id -> partition -> the end: the largest offset ever stored in this shard
        (docs/design.md#ends).
        """
        self.saved_ends: dict[tuple[str, int], int] = {}
        """(topic id, partition) -> the end in the newest ``PartitionEnd`` record."""
        self.now = Now(0, 0)
        self.step: Step
        """The replies, records and events of the current call. Every entry point begins a
        new step.
        """

    def overrides_of(self, group: Group) -> GroupOverrides:
        """Return the configs of this group. A config that was not set has the default of
        ``GroupOverrides``.
        """
        return self.overrides.get(group.group_id, NO_OVERRIDES)

    def find_topic(self, name: str, topic_id: str, *, by_id: bool) -> TopicInfo | None:
        """Return the topic with this name, or with this id if ``by_id`` is True. Return None if it
        does not exist. If the host keeps no topics, every topic exists.
        """
        image = self.image
        if image.accepts_any:
            return TopicInfo(name or topic_id, "", ANY_PARTITION)
        return image.by_id.get(topic_id) if by_id else image.by_name.get(name)

    # --- limits of all shards ---

    def admits_metadata(self, size_bytes: int, added_bytes: int) -> bool:
        """Return True if the metadata of a member may grow by ``added_bytes`` to ``size_bytes``.
        Small metadata is always allowed.
        """
        is_free = size_bytes <= SMALL_METADATA_BYTES or added_bytes <= 0
        return is_free or self.census.admits_metadata(size_bytes, added_bytes)

    def admits_assignment(self, size_bytes: int, added_bytes: int, members: int = 1) -> bool:
        """Return True if the room for the assignments of a group may grow by ``added_bytes`` to
        ``size_bytes``. A size that is small for this number of members is always allowed.
        """
        is_free = size_bytes <= SMALL_ASSIGNMENT_BYTES * members or added_bytes <= 0
        return is_free or self.census.admits_assignment(size_bytes, added_bytes)

    # --- effects ---

    def reply(self, ticket: Ticket, result: Result, waits: bool = True) -> None:
        """Answer a ticket. ``waits`` may be False only if the reply promises nothing that a crash
        could revoke (docs/design.md#durable-first)."""
        self.step.replies.append(Reply(ticket, result, waits))

    def record(self, record: Record, size_bytes: int = SMALL_RECORD_BYTES) -> None:
        """Apply a record to the hard state, and add the record to the step.

        ``size_bytes`` is the approximate size of the encoded record.
        """
        self.apply(record)
        step = self.step
        if step.records:
            step.records.append(record)
        else:
            step.records = [record]
        step.record_bytes += size_bytes

    def record_group_removed(self, group: Group) -> None:
        """Record the deletion of a group, with its offsets and its pending offsets. Clear its
        deadlines. In gateway mode also record that the group is not adopted again.
        """
        assert not any(group.parked()), "a parked request would never be answered"
        for deadline in group.deadlines():
            self.deadlines.clear(deadline)
        for pending in self.pendings.of_group(group.group_id):
            self.record(PendingEnded(pending.pending_id))
        self.record(GroupRemoved(group.group_id))
        most = self.limits.max_remembered_groups
        for mark in self.adoptions.removal(group.group_id, self.now.wall_ms, most):
            self.record(mark)

    def record_removed(self, group: Group, offsets: Sequence[StoredOffset]) -> None:
        gone = [(topic, partition) for topic, partition, _ in offsets]
        size_bytes = SMALL_RECORD_BYTES + REMOVED_OFFSET_BYTES * len(gone)
        self.record(OffsetsRemoved(group.group_id, gone), size_bytes)

    def record_adopted(self, group: Group, offsets: Sequence[StoredOffset]) -> None:
        """Record topic ids for offsets that have none. The topics are found by their names."""
        topics: dict[str, AdoptedTopic] = {}
        for name, partition, stored in offsets:
            topic_id = self.image.by_name[name].topic_id
            topic = topics.setdefault(name, AdoptedTopic(name, topic_id, []))
            topic.partitions.append((partition, stored.offset))
        size_bytes = SMALL_RECORD_BYTES + REMOVED_OFFSET_BYTES * len(offsets)
        self.record(OffsetsAdopted(group.group_id, [*topics.values()]), size_bytes)

    def event(self, event: Event) -> None:
        """Add an event to the step."""
        step = self.step
        if step.events:
            step.events.append(event)
        else:
            step.events = [event]

    def begin_work(self, work: Work) -> None:
        """Add a computation to the step. ``work_done`` of the group's ``Behaviour`` gets the
        outcome.
        """
        self.step.work = [*self.step.work, work]

    def arm(self, deadline: Deadline, at_ms: int) -> None:
        """Set or move a deadline."""
        if self.deadlines.arm(deadline, at_ms):
            self.step.sets_alarm = True

    def begin_session(self, member: Member, length_ms: int) -> None:
        """Start a session of this length. The session of a new member runs even while its join is
        parked.
        """
        member.session_length_ms = length_ms
        self.arm(member.session, self.now.monotonic_ms + length_ms)

    def restart_session(self, member: Member) -> None:
        """Start the member's session again, with its full length (Kafka:
        rescheduleClassicGroupMemberHeartbeat).
        """
        member.session_length_ms = length_ms = member.session_timeout_ms
        at_ms = self.now.monotonic_ms + length_ms
        session = member.session
        if session.queued_at is not None and at_ms >= session.queued_at:
            session.at = at_ms  # as ``arm`` would, without a call: nearly every request needs it
        elif self.deadlines.arm(session, at_ms):
            self.step.sets_alarm = True

    # --- hard state ---

    def apply(self, record: Record) -> None:
        """Apply a record to the hard state. Both requests and loads use this function, and nothing
        else changes the hard state.

        See docs/design.md#hard-state.
        """
        if isinstance(record, OffsetsCommitted):
            self._apply_commit(record)
        elif isinstance(record, GroupRecord):
            self._group_of_type(record.group_id, GroupType.CLASSIC).save(record)
        elif isinstance(record, SavedGroup):
            self._apply_saved_group(record)
        elif isinstance(record, SavedOffsets):
            self._add_offsets(self._group(record.group_id), record.offsets)
        elif isinstance(record, OffsetsRemoved):
            self._apply_offsets_removed(record)
        elif isinstance(record, OffsetsAdopted):
            self._apply_adopted(record)
        elif isinstance(record, GroupRemoved):
            self._remove(record.group_id)
        elif isinstance(record, PartitionEnd):
            self._apply_end(record)
        else:
            self._apply_other(record)

    def _apply_other(self, record: Record) -> None:
        if isinstance(record, PENDING_RECORDS):
            self.pendings.apply(record)
        elif isinstance(record, AdoptionMark):
            self.adoptions.apply(record)
        elif isinstance(record, ConsumerGroupRecord):
            self._group_of_type(record.group_id, GroupType.CONSUMER).save(record)
        elif isinstance(record, CONSUMER_CHANGES):
            group = self.groups.get(record.group_id)
            if group is not None:  # a load may read a change again whose group is deleted by now
                group.change(record)
        else:
            raise TypeError(f"{type(record).__name__} does not belong to a shard of groups")

    def _group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.new_group(group_id, GroupType.CLASSIC)
            self.enter(group)
        return group

    def _group_of_type(self, group_id: str, group_type: GroupType) -> Group:
        """Return the group. If it is absent, create it with this type. If it has another type,
        replace it by a group of this type, which keeps only the offsets.
        """
        known = self.groups.get(group_id)
        if known is not None and known.group_type is group_type:
            return known
        group = self.new_group(group_id, group_type)
        if known is not None:
            group.take_offsets(known)
            known.uncount()
        self.enter(group)
        return group

    def new_group(self, group_id: str, group_type: GroupType) -> Group:
        """Return a new group without adding it to the shard. ``Shard`` implements this."""
        raise NotImplementedError

    def members_removed(self, group: Group, *, by_replacement: bool = False) -> bool:
        """Convert a consumer group to a classic group if only classic members are left. Return True
        if it was converted. ``Shard`` implements this with ``conversion.downgrade``, which explains
        ``by_replacement``.
        """
        raise NotImplementedError

    def enter(self, group: Group) -> None:
        """Add a new group to the shard."""
        self.groups[group.group_id] = group
        group.count()

    def _remove(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is not None:
            self.offsets_held -= group.offset_count()
            group.uncount()

    def _apply_commit(self, record: OffsetsCommitted) -> None:
        group = self.groups.get(record.group_id)
        if group is None:
            group = self._group(record.group_id)
        offsets = group.offsets
        has_metadata = group.offset_metadata_bytes > 0
        commit_time_ms: Any = record.commit_time_ms
        expire_time_ms: Any = record.expire_time_ms
        saved_offset: Any = SavedOffset  # a local name: mypyc looks up a global one at each use
        for topic in record.topics:
            topic_id = topic.topic_id
            if not topic_id:
                self.names_without_id.add(topic.topic)
            stored = offsets.get(topic.topic)
            if stored is None:
                stored = offsets[topic.topic] = {}
                group.offset_bytes += topic_bytes(topic.topic)
            ends = self._ends(topic_id)
            held_before = len(stored)
            rows: list[CommittedRow] = topic.partitions
            for partition, offset, _, leader_epoch, metadata in rows:
                if metadata or has_metadata:
                    has_metadata = True
                    before = stored.get(partition)
                    if before is None or before.metadata != metadata:
                        _count_metadata(group, before, metadata)
                stored[partition] = saved_offset(
                    offset, leader_epoch, metadata, commit_time_ms, expire_time_ms, topic_id
                )
                end: Any = ends.get(partition)
                known: int = -1 if end is None else end  # mypyc compares ints faster than Any
                new: int = offset
                if new > known:
                    ends[partition] = offset
            if added := len(stored) - held_before:
                self.offsets_held += added
                group.offset_bytes += SAVED_OFFSET_BYTES * added

    def _apply_saved_group(self, record: SavedGroup) -> None:
        if isinstance(record.metadata, ConsumerGroupRecord):
            group = self._group_of_type(record.group_id, GroupType.CONSUMER)
        else:
            group = self._group_of_type(record.group_id, GroupType.CLASSIC)
        group.save(record.metadata)
        self.offsets_held -= group.offset_count()
        group.offsets = {}
        group.offset_bytes = group.offset_metadata_bytes = 0
        self._add_offsets(group, record.offsets)

    def _add_offsets(self, group: Group, offsets: dict[str, dict[int, SavedOffset]]) -> None:
        # Copy the dicts: the group changes its own later, and the record must not change.
        for topic, parts in offsets.items():
            held = group.offsets.get(topic)
            if held is None:
                held = group.offsets[topic] = {}
                group.offset_bytes += topic_bytes(topic)
            held_before = len(held)
            for partition, stored in parts.items():
                if not stored.topic_id:
                    self.names_without_id.add(topic)
                _count_metadata(group, held.get(partition), stored.metadata)
                held[partition] = stored
                ends = self._ends(stored.topic_id)
                if stored.offset > ends.get(partition, -1):
                    ends[partition] = stored.offset
            added = len(held) - held_before
            self.offsets_held += added
            group.offset_bytes += SAVED_OFFSET_BYTES * added

    def _apply_offsets_removed(self, record: OffsetsRemoved) -> None:
        group = self.groups.get(record.group_id)
        if group is None:
            return
        for topic, partition in record.partitions:
            stored = group.offsets.get(topic)
            if stored is not None:
                gone = stored.pop(partition, None)
                if gone is not None:
                    self.offsets_held -= 1
                    group.offset_bytes -= SAVED_OFFSET_BYTES
                    _count_metadata(group, gone, "")
                if not stored:
                    del group.offsets[topic]
                    group.offset_bytes -= topic_bytes(topic)

    def _apply_adopted(self, record: OffsetsAdopted) -> None:
        group = self.groups.get(record.group_id)
        if group is None:
            return
        for topic in record.topics:
            offsets = group.offsets.get(topic.topic, {})
            ends = self._ends(topic.topic_id)
            for partition, _ in topic.partitions:
                stored = offsets.get(partition)
                if stored is not None and not stored.topic_id:
                    offsets[partition] = stored.of_topic(topic.topic_id)
                    ends[partition] = max(stored.offset, ends.get(partition, -1))

    def _apply_end(self, record: PartitionEnd) -> None:
        key = (record.topic_id, record.partition)
        if record.end_offset < 0:
            self.saved_ends.pop(key, None)
            self._ends(record.topic_id).pop(record.partition, None)
            return
        self.saved_ends[key] = record.end_offset
        ends = self._ends(record.topic_id)
        ends[record.partition] = max(record.end_offset, ends.get(record.partition, -1))

    def _ends(self, topic_id: str) -> dict[int, int]:
        ends = self.ends_by_topic.get(topic_id)
        if ends is None:
            ends = self.ends_by_topic[topic_id] = {}
        return ends

    # --- what is saved, for folds and comparisons ---

    def saved(self, group_id: str) -> SavedGroup | None:
        """Return a group in the form that storage saves; None if the group does not exist."""
        group = self.groups.get(group_id)
        return None if group is None else group.to_saved()

    def end_of(self, topic_id: str, partition: int) -> int:
        """Return the largest offset of a partition ever stored in this shard; -1 if there
        is none.
        """
        return self.ends_by_topic.get(topic_id, {}).get(partition, -1)

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the ends as (topic id, partition) -> the largest offset ever stored in
        this shard.
        """
        return {
            (topic_id, partition): end
            for topic_id, ends in self.ends_by_topic.items()
            if topic_id
            for partition, end in ends.items()
        }


def _count_metadata(group: Group, before: SavedOffset | None, metadata: str) -> None:
    """Update the size of the group's offset metadata: one offset gets other metadata."""
    if before is not None and before.metadata:
        group.offset_metadata_bytes -= text_bytes(before.metadata)
    if metadata:
        group.offset_metadata_bytes += text_bytes(metadata)
