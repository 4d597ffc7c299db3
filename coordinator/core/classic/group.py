"""A classic group: its saved state, and the live state that a failover may lose.

See docs/design.md#hard-state. Only ``ShardState.apply`` changes ``saved`` and ``offsets``.
Everything else is live: when a shard loads, it is rebuilt from the saved state, or starts empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from groupkeeper.coordinator.core.classic.member import ClassicMember, encoded_bytes
from groupkeeper.coordinator.core.classic.transitions import (
    COMMIT_ANSWER,
    COMMIT_EXTENDS_SESSION,
    PREDECESSORS,
)
from groupkeeper.coordinator.core.consumer_records import ConsumerGroupRecord
from groupkeeper.coordinator.core.deadlines import Deadline, DeadlineKind
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.groups.census import Tally
from groupkeeper.coordinator.core.groups.group import (
    Group,
    Member,
    OffsetExpiry,
    repeated_id_bytes,
)
from groupkeeper.coordinator.core.records import GroupMetadata, GroupRecord, SavedGroup
from groupkeeper.coordinator.core.requests.admin import ListedGroup
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinedMember,
    JoinProtocol,
    SyncGroup,
)
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit, OffsetFetch
from groupkeeper.coordinator.core.step import Ticket

CONSUMER = "consumer"
"""The protocol type whose metadata we can decode. The metadata of other types, like Connect, is
opaque.
"""

MAX_GENERATION = 2**31 - 1

_EMPTY: Final = GroupState.EMPTY
_NONE: Final = ErrorCode.NONE
"""A local name, since every request needs it: looking up an enum member costs 70 ns."""
_COMMIT_ANSWER: Final = COMMIT_ANSWER
_COMMIT_EXTENDS_SESSION: Final = COMMIT_EXTENDS_SESSION
"""Local names too, for mypyc: it looks up an imported name at each use."""

_NO_TOPICS: Final[frozenset[str]] = frozenset()


class ClassicGroup(Group):
    """A classic group, with its saved and its live state."""

    __slots__ = (
        "generation_id",
        "initial_delay_left_ms",
        "is_initial_rebalance",
        "join_phase",
        "leader_id",
        "new_member_added",
        "parked_joins",
        "pending_members",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "rebalance_started_ms",
        "saved",
        "state",
        "state_timestamp_ms",
        "subscribed_topics",
        "support",
        "sync_phase",
    )

    members: dict[str, ClassicMember]

    def __init__(self, group_id: str, tally: Tally) -> None:
        """Create an Empty group of generation 0. ``count`` adds the group to the tally."""
        super().__init__(group_id, GroupType.CLASSIC, tally)
        # Saved: only apply writes it.
        self.saved: GroupRecord | None = None
        # Not saved.
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = -1
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.pending_members: dict[str, Deadline] = {}
        """Member id -> deadline. The ids were returned with MEMBER_ID_REQUIRED, and their members
        have not joined yet (KIP-394).
        """
        self.pending_sync: set[str] = set()
        """Members of this generation that have not sent their SyncGroup."""
        self.subscribed_topics: frozenset[str] | None = None
        """The topics that the members of this generation subscribe to, or None if they are unknown.

        See docs/spec/offsets.md#delete.
        """
        self.support: Counter[str] = Counter()
        """Protocol name -> the number of members that offer it."""
        self.parked_joins = 0
        # The current rebalance.
        self.is_initial_rebalance = False
        self.new_member_added = False
        self.initial_delay_left_ms = 0
        self.rebalance_started_ms = 0
        self.join_phase = Deadline(DeadlineKind.JOIN_PHASE, (group_id, ""))
        self.sync_phase = Deadline(DeadlineKind.SYNC_PHASE, (group_id, ""))

    # --- state ---

    def transition_to(self, state: GroupState, wall_ms: int) -> None:
        """Enter a state. ``PREDECESSORS`` has the states from which this is allowed."""
        assert self.state in PREDECESSORS[state], f"{self.state} -> {state}"
        self.count_state(self.state, state)
        self.state = state
        self.state_timestamp_ms = wall_ms

    def next_generation(self) -> None:
        """Begin the next generation (docs/spec/groups.md#generations).

        After the largest number the generation is 1 again, because 0 and negative numbers mean
        "none".
        """
        self.generation_id = 1 if self.generation_id == MAX_GENERATION else self.generation_id + 1

    def all_joined(self) -> bool:
        """Return True if every member's join is parked, and no id in ``pending_members`` waits for
        its second join.
        """
        return self.parked_joins == len(self.members) and not self.pending_members

    def largest_rebalance_timeout_ms(self) -> int:
        """Return the largest rebalance timeout of the members. It limits a join or sync phase."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # --- members ---

    def identity_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return the error if a request is not from a member of this group, else NONE.

        See docs/spec/joining.md#join-group, "identity check".
        """
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return _NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def generation_error(self, request: Heartbeat | SyncGroup) -> ErrorCode:
        """Return the error if the request is not from a member of the current generation, else
        NONE.

        The member's identity is checked first.
        """
        error = self.identity_error(request.member_id, request.group_instance_id)
        if not error and request.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def supports(self, protocol_type: str, protocols: tuple[JoinProtocol, ...]) -> bool:
        """Return True if a member with these protocols may be in the group.

        See docs/spec/joining.md#join-group, step 7.
        """
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        everyone = len(self.members)
        return any(self.support[p.name] == everyone for p in protocols)

    def add(self, member: ClassicMember) -> None:
        """Add a member. It becomes the leader if there is none."""
        member.protocols = self._shared(member.protocols)
        self.hold(member)
        self._count(member, 1)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: ClassicMember) -> None:
        """Remove a member. The caller has answered its parked requests and cleared its deadline."""
        assert member.parked_join is None, "a parked join would never be answered"
        assert member.parked_sync is None, "a parked sync would never be answered"
        self.drop(member)
        self._count(member, -1)
        self.pending_sync.discard(member.member_id)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def replace(self, old: ClassicMember, member: ClassicMember) -> None:
        """Replace a static member by ``member``, which has a new member id (KIP-345). If ``old``
        was the leader, ``member`` becomes the leader. If ``old`` has not sent its SyncGroup,
        ``member`` must send it.
        """
        assert old.parked_join is None, "a parked join would never be answered"
        assert member.group_instance_id is not None, "only static members are replaced"
        self._count(old, -1)
        self._count(member, 1)
        del self.members[old.member_id]
        self.members[member.member_id] = member
        self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id == old.member_id:
            self.leader_id = member.member_id
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
            self.pending_sync.add(member.member_id)

    def set_protocols(self, member: ClassicMember, protocols: tuple[JoinProtocol, ...]) -> None:
        """Replace the protocols that a member offers."""
        self._count(member, -1)
        member.offer(self._shared(protocols))
        self._count(member, 1)

    def _shared(self, protocols: tuple[JoinProtocol, ...]) -> tuple[JoinProtocol, ...]:
        """Return the leader's protocols if they equal ``protocols``, otherwise ``protocols``. The
        members of a group usually offer the same protocols, which are then in memory only once.
        """
        leader = None if self.leader_id is None else self.members.get(self.leader_id)
        if leader is not None and leader.protocols == protocols:
            return leader.protocols
        return protocols

    def _count(self, member: ClassicMember, sign: int) -> None:
        for protocol in member.protocols:
            self.support[protocol.name] += sign
            if not self.support[protocol.name]:
                del self.support[protocol.name]
        self.size_bytes += sign * (member.size_bytes + repeated_id_bytes(self.group_id))
        self.tally.metadata_bytes += sign * member.metadata_bytes

    def park_join(self, member: ClassicMember, ticket: Ticket) -> Ticket | None:
        """Park a member's join. Return the ticket of the join that was parked before, or None."""
        superseded, member.parked_join = member.parked_join, ticket
        if superseded is None:
            self.parked_joins += 1
        return superseded

    def release_join(self, member: ClassicMember) -> Ticket | None:
        """Remove a member's parked join. Return its ticket, which the caller must answer, or None
        if no join is parked.
        """
        ticket, member.parked_join = member.parked_join, None
        if ticket is not None:
            self.parked_joins -= 1
        return ticket

    def select_protocol(self) -> str:
        """Return the protocol with the most votes. Only protocols that all members support count.

        Each member votes for the first such protocol in its own list. If two have equal votes, the
        one that got a vote earlier wins, so the result is deterministic. In Kafka ties are
        arbitrary (ClassicGroup.selectProtocol).
        """
        everyone = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(p.name for p in member.protocols if self.support[p.name] == everyone)] += 1
        return max(votes, key=votes.__getitem__)

    def members_for_leader(self) -> tuple[JoinedMember, ...]:
        """Return all members, with their metadata for the chosen protocol, for the leader."""
        return tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(self.protocol_name))
            for m in self.members.values()
        )

    # --- what every type of groups implements ---

    def state_name(self) -> GroupState:
        return self.state

    def epoch(self) -> int:
        return self.generation_id

    def epoch_of(self, member: Member) -> int:
        return self.generation_id

    def is_empty(self) -> bool:
        return self.state is _EMPTY

    def listed(self) -> ListedGroup:
        return ListedGroup(
            self.group_id, self.protocol_type or "", self.state, GroupType.CLASSIC.value
        )

    def commit_error(self, request: OffsetCommit) -> ErrorCode:
        generation_id = request.generation_id
        state = self.state
        if state is _EMPTY:  # The member id does not matter: docs/spec/edge-cases.md#edge-62
            return _NONE if generation_id < 0 else _COMMIT_ANSWER[state]
        if request.group_instance_id is not None or request.member_id not in self.members:
            error = self.identity_error(request.member_id, request.group_instance_id)
            if error:
                return error
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return _COMMIT_ANSWER[state]

    def commit_restarts_session(self) -> bool:
        return self.state in _COMMIT_EXTENDS_SESSION

    def fetch_error(self, request: OffsetFetch) -> ErrorCode:
        """Return NONE: a classic group ignores the member of a fetch."""
        return _NONE

    def offset_delete_error(self) -> ErrorCode:
        """Return NON_EMPTY_GROUP if the subscriptions cannot be decoded
        (docs/spec/edge-cases.md#edge-78).
        """
        is_opaque = self.state is not _EMPTY and self.protocol_type != CONSUMER
        return ErrorCode.NON_EMPTY_GROUP if is_opaque else _NONE

    def subscribes_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic (docs/spec/edge-cases.md#edge-77)."""
        if self.state is _EMPTY:
            return False
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def offset_expiry(self) -> OffsetExpiry | None:
        if self.protocol_type is None:
            return OffsetExpiry(None, _NO_TOPICS)  # a simple group
        if self.state is _EMPTY:
            since_ms = self.state_timestamp_ms
            return OffsetExpiry(since_ms if since_ms >= 0 else None, _NO_TOPICS)
        subscribed = self.subscribed_topics
        is_stable = self.state is GroupState.STABLE
        if is_stable and self.protocol_type == CONSUMER and subscribed is not None:
            return OffsetExpiry(None, subscribed)
        return None

    def parked(self) -> Iterator[Ticket]:
        for member in self.members.values():
            for ticket in (member.parked_join, member.parked_sync):
                if ticket is not None:
                    yield ticket

    def deadlines(self) -> Iterator[Deadline]:
        yield self.join_phase
        yield self.sync_phase
        yield from self.pending_members.values()
        for member in self.members.values():
            yield member.session

    def metadata_bytes(self) -> int:
        return sum([member.metadata_bytes for member in self.members.values()])

    def save(self, record: GroupMetadata | None) -> None:
        assert not isinstance(record, ConsumerGroupRecord), "another type has another class"
        self.saved = record
        members = () if record is None else record.members
        self.assigned_bytes = sum([encoded_bytes(len(m.assignment)) for m in members])
        self.reserve(self.assigned_bytes)

    def to_saved(self) -> SavedGroup:
        return SavedGroup(self.group_id, self.saved, self.offsets)
