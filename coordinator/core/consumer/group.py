"""A consumer group: its saved state, and the live state that a failover may lose.

The saved state is: members, epochs, targets, and the partitions that members have. Only
``ShardState.apply`` changes it, through ``save`` and ``change``, which also update the counts. The
live state is: deadlines, parked heartbeats, and the computations that are running.

This file is long because each record changes several sums, which must be changed with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from groupkeeper.coordinator.core.consumer.computation import TargetComputation
from groupkeeper.coordinator.core.consumer.epochs import Epochs
from groupkeeper.coordinator.core.consumer.member import (
    NOT_ASSIGNED,
    ConsumerGroupMember,
    current_bytes,
    owned_partitions,
    partition_count,
    target_bytes,
    target_room_bytes,
)
from groupkeeper.coordinator.core.consumer.subscriptions import Subscriptions
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
    ResolvedPattern,
    SavedConsumerMember,
)
from groupkeeper.coordinator.core.deadlines import Deadline
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.groups.census import Tally
from groupkeeper.coordinator.core.groups.group import (
    GROUP_OVERHEAD_BYTES,
    Group,
    Member,
    OffsetExpiry,
)
from groupkeeper.coordinator.core.records import GroupMetadata, SavedGroup
from groupkeeper.coordinator.core.requests.admin import ListedGroup
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit, OffsetFetch
from groupkeeper.coordinator.core.step import Ticket

_NONE: Final = ErrorCode.NONE


class ConsumerGroup(Group):
    """A consumer group, with its saved and its live state."""

    __slots__ = (
        "_fields_bytes",
        "_reserved_partitions",
        "_settled",
        "computation",
        "epochs",
        "is_beginning",
        "is_stale",
        "last_resolution_ms",
        "owners",
        "rebalance_started_ms",
        "resolved_version",
        "resolving",
        "retry_at_ms",
        "state",
        "subscriptions",
        "target_partitions",
        "target_topics",
    )

    members: dict[str, ConsumerGroupMember]

    def __init__(self, group_id: str, tally: Tally) -> None:
        """Create an Empty group. ``count`` adds the group to the tally."""
        super().__init__(group_id, GroupType.CONSUMER, tally)
        # Saved: only apply writes these.
        self.epochs = Epochs()
        self.subscriptions = Subscriptions(group_id, tally.subscribers)
        # Computed from the saved fields.
        self.owners: dict[str, dict[int, str]] = {}
        """Topic id -> partition -> member id of the owner, until it has given the partition up. A
        topic without owners has no entry."""
        self.state = GroupState.EMPTY
        self._settled = 0
        """The number of members that have reached the target."""
        self._fields_bytes = 0
        self.target_topics = 0
        self.target_partitions = 0
        """The sums of the topics and of the partitions in the targets of all members."""
        self._reserved_partitions = 0
        """The partitions for whose moves the group has room (``reserved_bytes``)."""
        # Not saved.
        self.is_stale = True
        """True if the subscribed topics may have changed since their hash was computed."""
        self.computation: TargetComputation | None = None
        """The running computation of a target, or None."""
        self.is_beginning = False
        """True if the computation of a target begins in the next step."""
        self.resolving = False
        """True while the runtime finds the topics of the patterns."""
        self.last_resolution_ms: int | None = None
        """When the runtime last began to find the topics of the patterns (monotonic ms)."""
        self.resolved_version = -1
        """The version of the ``TopicImage`` in which the topics of the patterns were last found. It
        is -1 after a load, because versions count from the start of the process."""
        self.retry_at_ms = 0
        """When the target may be computed again after a failure (monotonic ms)."""
        self.rebalance_started_ms: int | None = None
        """When the running rebalance began (monotonic ms); None if there is none."""

    # --- records ---

    def change(self, record: ConsumerChange) -> None:
        _CHANGE[type(record)](self, record)
        self._restate()

    def _set_epoch(self, record: ConsumerGroupEpoch) -> None:
        self.epochs.group = record.epoch
        self.epochs.metadata_hash = record.metadata_hash
        if not self.members:  # and none is being replaced, which begins no epoch
            self._reserve(keeps=False)

    def _set_member(self, record: ConsumerMember) -> None:
        self._put(record.member)

    def _remove_member(self, record: ConsumerMemberRemoved) -> None:
        member = self.members.get(record.member_id)
        if member is not None:
            self._have(member, NOT_ASSIGNED)
            self._aim(member, {})
            self.subscriptions.remove(member.subscription)
            self._fields_bytes -= member.size_bytes
            self._settled -= member.is_settled(self.epochs.target)
            self.drop(member)

    def _set_target(self, record: ConsumerTarget) -> None:
        for member_id, partitions in record.members.items():
            member = self.members.get(member_id)
            if member is not None:
                self._aim(member, partitions)
        self._reserve(keeps=record.epoch == self.epochs.target)
        self.epochs.computed_ms = record.computed_ms
        if record.epoch != self.epochs.target:
            self.epochs.target = record.epoch
            self._settled = sum([m.is_settled(record.epoch) for m in self.members.values()])

    def _set_current(self, record: ConsumerCurrentAssignment) -> None:
        member = self.members.get(record.member_id)
        if member is not None:
            self._have(member, record.current)

    def _set_pattern(self, record: ResolvedPattern) -> None:
        self.subscriptions.resolve(record.pattern, record.resolved)

    def _put(self, fields: ConsumerMemberFields) -> ConsumerGroupMember:
        """Add a member, or replace its saved fields."""
        member = self.members.get(fields.member_id)
        if member is None:
            member = ConsumerGroupMember(self.group_id, fields)
            self.hold(member)
            self._settled += member.is_settled(self.epochs.target)
        else:
            self.subscriptions.remove(member.subscription)
            self._fields_bytes -= member.size_bytes
            self._rename(member, fields.group_instance_id)
        subscription = self.subscriptions.add(fields)
        if subscription.names is not fields.subscribed_topic_names:
            fields = msgspec.structs.replace(fields, subscribed_topic_names=subscription.names)
        member.subscription = subscription
        member.set_fields(fields)
        self._fields_bytes += member.size_bytes
        return member

    def _rename(self, member: ConsumerGroupMember, group_instance_id: str | None) -> None:
        """Set the instance id of a member. A dynamic member may get one when it joins again."""
        self._release_instance(member)
        member.group_instance_id = group_instance_id
        if group_instance_id is not None:
            self.static_members[group_instance_id] = member.member_id

    def _release_instance(self, member: Member) -> None:
        instance_id = member.group_instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def drop(self, member: Member) -> None:
        """Remove a member. A load may read old records again, so if another member has the same
        instance id, that member keeps it.
        """
        del self.members[member.member_id]
        self.tally.members -= 1
        self._release_instance(member)

    def _aim(self, member: ConsumerGroupMember, target: Partitions) -> None:
        """Set the target of a member."""
        more_topics = len(target) - len(member.target)
        partitions = partition_count(target)
        more_partitions = partitions - member.target_partitions
        self.assigned_bytes += target_bytes(more_topics, more_partitions)
        self.target_topics += more_topics
        self.target_partitions += more_partitions
        member.target = target
        member.target_partitions = partitions

    def _reserve(self, *, keeps: bool) -> None:
        """Reserve room for the targets of all members. If ``keeps`` is True, also keep the room of
        members that have left: the next target gives their partitions to the others.
        """
        needed_bytes = target_room_bytes(self.target_topics, self.target_partitions)
        if keeps:
            self._reserved_partitions = max(self._reserved_partitions, self.target_partitions)
            self.reserve(max(self.reserved_bytes, needed_bytes))
        else:
            self._reserved_partitions = self.target_partitions
            self.reserve(needed_bytes)

    def may_move(self, partitions: int) -> bool:
        """Return True if the targets of all members may have this number of partitions without
        asking for room. Partitions may always move between members.
        """
        return partitions <= self._reserved_partitions

    def _have(self, member: ConsumerGroupMember, current: AssignedFields) -> None:
        """Set the partitions that a member has. A load may read old records again. So another
        member may still have one of these partitions, until its newer record is read.
        """
        self.assigned_bytes += current_bytes(current) - current_bytes(member.current)
        self._settled -= member.is_settled(self.epochs.target)
        had, has = owned_partitions(member.current), owned_partitions(current)
        for topic, numbers in had.items():
            if numbers != (kept := has.get(topic, ())):
                self._disown(topic, frozenset(numbers).difference(kept), member.member_id)
        member.current = current
        for topic, numbers in has.items():
            own = dict.fromkeys(numbers, member.member_id)
            if topic in self.owners:
                self.owners[topic].update(own)
            else:
                self.owners[topic] = own
        self._settled += member.is_settled(self.epochs.target)

    def _disown(self, topic: str, numbers: Iterable[int], member_id: str) -> None:
        """Forget this member as the owner of these partitions."""
        owners = self.owners.get(topic, {})
        for number in numbers:
            if owners.get(number) == member_id:
                del owners[number]
        if not owners:
            self.owners.pop(topic, None)

    def _restate(self) -> None:
        """Update ``state`` and ``size_bytes`` after a change of the members or epochs
        (docs/spec/consumer-groups.md#model).
        """
        if not self.members:
            state = GroupState.EMPTY
        elif self.epochs.needs_target():
            state = GroupState.ASSIGNING
        elif self._settled < len(self.members):
            state = GroupState.RECONCILING
        else:
            state = GroupState.STABLE
        if state is not self.state:
            self.count_state(self.state, state)
            self.state = state
        size_bytes = GROUP_OVERHEAD_BYTES + 6 * len(self.group_id) + self.metadata_bytes()
        self.tally.metadata_bytes += size_bytes - self.size_bytes
        self.size_bytes = size_bytes

    def save(self, record: GroupMetadata | None) -> None:
        assert isinstance(record, ConsumerGroupRecord), "another type has another class"
        for member_id in list(self.members):
            self._remove_member(ConsumerMemberRemoved(self.group_id, member_id))
        self.subscriptions.clear()
        self.epochs = Epochs(
            record.epoch, record.metadata_hash, record.target_epoch, record.computed_ms
        )
        for pattern, topics in record.patterns.items():
            self.subscriptions.resolve(pattern, topics)
        for saved in record.members:
            names = record.subscriptions[saved.subscription]
            member = self._put(msgspec.structs.replace(saved.fields, subscribed_topic_names=names))
            self._aim(member, saved.target)
            self._have(member, saved.current)
        self._reserve(keeps=False)
        self._restate()

    def to_record(self) -> ConsumerGroupRecord:
        """Return one record of the whole group, without its offsets."""
        lists: dict[int, tuple[int, tuple[str, ...]]] = {}  # by identity, which needs no hash
        members = []
        for member in self.members.values():
            names = member.subscription.names
            position, _ = lists.setdefault(id(names), (len(lists), names))
            fields = msgspec.structs.replace(member.fields, subscribed_topic_names=())
            members.append(SavedConsumerMember(fields, position, member.current, member.target))
        epochs = self.epochs
        return ConsumerGroupRecord(
            self.group_id,
            epochs.group,
            epochs.metadata_hash,
            epochs.target,
            epochs.computed_ms,
            tuple([names for _, names in lists.values()]),
            tuple(members),
            dict(self.subscriptions.resolved),
        )

    def to_saved(self) -> SavedGroup:
        return SavedGroup(self.group_id, self.to_record(), self.offsets)

    def uncount(self) -> None:
        super().uncount()
        self.subscriptions.clear()

    # --- members ---

    def assignor(self, default: str) -> str:
        """Return the assignor that most members name; ``default`` if none names one. If several
        have equal votes, return the first by name.
        """
        votes: dict[str, int] = {}
        for member in self.members.values():
            named = member.fields.server_assignor
            if named is not None:
                votes[named] = votes.get(named, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name), default=default)

    # --- what every type of groups implements ---

    def state_name(self) -> GroupState:
        return self.state

    def epoch(self) -> int:
        return self.epochs.group

    def epoch_of(self, member: ConsumerGroupMember) -> int:
        return member.current.epoch

    def is_empty(self) -> bool:
        return not self.members

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, "consumer", self.state, GroupType.CONSUMER.value)

    def commit_error(self, request: OffsetCommit) -> ErrorCode:
        """Return the error if the sender may not commit, else NONE. If the epoch of the sender is
        old, the caller also asks ``admits_older_epoch``.
        """
        epoch = request.generation_id
        if epoch < 0 and not self.members:
            return _NONE
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.fields.classic is None and not request.knows_member_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        return _NONE if epoch == member.current.epoch else _stale(member)

    def admits_older_epoch(
        self, request: OffsetCommit, partitions: Iterable[tuple[str, int]]
    ) -> bool:
        member = self.members.get(request.member_id)
        if member is None or not 0 <= request.generation_id < member.current.epoch:
            return False
        if member.fields.classic is None and not request.knows_member_epochs:
            return False
        current, epoch = member.current, request.generation_id
        got_at: dict[str, dict[int, int]] = {}
        for topic, number in partitions:
            if topic not in got_at:
                parts = current.assigned.get(topic, ()) + current.revoking.get(topic, ())
                got_at[topic] = dict(parts)
            if got_at[topic].get(number, epoch + 1) > epoch:
                return False
        return True

    def commit_restarts_session(self) -> bool:
        return False

    def fetch_error(self, request: OffsetFetch) -> ErrorCode:
        if request.member_id is None:  # Kafka fails on the null id if there is an epoch
            return _NONE if request.member_epoch < 0 else ErrorCode.UNKNOWN_SERVER_ERROR
        member = self.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return _NONE if request.member_epoch == member.current.epoch else _stale(member)

    def offset_delete_error(self) -> ErrorCode:
        return _NONE

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.subscriptions.topics()

    def offset_expiry(self) -> OffsetExpiry:
        return OffsetExpiry(None, frozenset(self.subscriptions.topics()))

    def parked(self) -> Iterator[Ticket]:
        yield from [m.parked for m in self.members.values() if m.parked is not None]

    def deadlines(self) -> Iterator[Deadline]:
        for member in self.members.values():
            yield from member.deadlines()

    def metadata_bytes(self) -> int:
        return self._fields_bytes + self.subscriptions.size_bytes + self.repeated_bytes()


_CHANGE: Final[dict[type, Callable[[ConsumerGroup, Any], None]]] = {
    ConsumerGroupEpoch: ConsumerGroup._set_epoch,
    ConsumerMember: ConsumerGroup._set_member,
    ConsumerMemberRemoved: ConsumerGroup._remove_member,
    ConsumerTarget: ConsumerGroup._set_target,
    ConsumerCurrentAssignment: ConsumerGroup._set_current,
    ResolvedPattern: ConsumerGroup._set_pattern,
}


def _stale(member: ConsumerGroupMember) -> ErrorCode:
    """Return the error for a wrong epoch. Each protocol has its own error."""
    if member.fields.classic is not None:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH
