"""A classic group: what is saved, and beside it what a failover may lose
(docs/design.md#hard-state).

``saved`` and ``offsets`` are replaced by ``Shard.apply`` alone. Everything else is live: it is made
anew from what is saved when a shard is loaded.

Long because it is the state of a group, saved and live, and every question about it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from groupkeeper.coordinator.core.deadlines import Deadline, DeadlineKind
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.census import Tally
from groupkeeper.coordinator.core.groups.transitions import PREDECESSORS
from groupkeeper.coordinator.core.records import GroupRecord, SavedGroup, SavedMember, SavedOffset
from groupkeeper.coordinator.core.requests import Client, GroupState, JoinedMember, JoinProtocol
from groupkeeper.coordinator.core.step import Ticket
from groupkeeper.protocol.consumer_protocol import ConsumerProtocolError, all_subscribed_topics

CONSUMER = "consumer"
"""The protocol type whose bytes we understand; Connect's and others' are opaque."""

MAX_GENERATION = 2**31 - 1

_NONE: Final = ErrorCode.NONE
"""Looking a member of an enum up costs 70 ns: asked for with every request."""

MEMBER_OVERHEAD_BYTES = 512
"""What a member costs in a record beside its strings and bytes; deliberately too much."""


class Member:
    """One member of a group."""

    __slots__ = (
        "assignment",
        "client",
        "group_instance_id",
        "is_new",
        "join_time_ms",
        "member_id",
        "parked_join",
        "parked_sync",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_length_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        client: Client,
    ) -> None:
        """Make a member that has not joined yet."""
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client = client
        self.session_timeout_ms = 0
        self.rebalance_timeout_ms = 0
        self.protocols: tuple[JoinProtocol, ...] = ()
        self.assignment = b""
        self.parked_join: Ticket | None = None
        self.parked_sync: Ticket | None = None
        self.is_new = False
        """In its first join phase: its session may end while its join is parked."""
        self.join_time_ms: int | None = None
        """When this member id came (wall clock); None after a load."""
        self.session = Deadline(DeadlineKind.SESSION, (group_id, member_id))
        self.session_length_ms = 0
        """Of the session that runs: a new member's first one is the new-member timeout."""

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for one protocol; empty where it does not offer it."""
        return next((p.metadata for p in self.protocols if p.name == protocol_name), b"")

    def size_bytes(self) -> int:
        """An upper bound of what this member adds to a record, its assignment not counted."""
        return member_bytes(
            self.member_id, self.group_instance_id, self.client.client_id, self.protocols
        )


def member_bytes(
    member_id: str,
    group_instance_id: str | None,
    client_id: str,
    protocols: tuple[JoinProtocol, ...],
) -> int:
    """An upper bound of what such a member adds to a record, or to the event of its joining.

    The record has the metadata of one protocol, the event the names of all.
    """
    largest = max((len(p.metadata) for p in protocols), default=0)
    text = len(member_id) + len(group_instance_id or "") + len(client_id)
    text += sum(len(p.name) for p in protocols)
    return MEMBER_OVERHEAD_BYTES + 6 * text + encoded_bytes(largest)


def encoded_bytes(length: int) -> int:
    """What ``length`` bytes become when a record is encoded (base64, rounded up)."""
    return length * 4 // 3 + 4


def metadata_bytes(protocols: tuple[JoinProtocol, ...]) -> int:
    """Return what a member holds for all protocols that it offers."""
    return sum([len(protocol.metadata) for protocol in protocols])


class Group:
    """One group and everything that is known of it."""

    __slots__ = (
        "assigned_bytes",
        "generation_id",
        "group_id",
        "initial_delay_left_ms",
        "is_initial_rebalance",
        "join_phase",
        "leader_id",
        "members",
        "new_member_added",
        "offset_bytes",
        "offset_metadata_bytes",
        "offsets",
        "parked_joins",
        "pending_members",
        "pending_sync",
        "protocol_name",
        "protocol_type",
        "rebalance_started_ms",
        "saved",
        "size_bytes",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
        "support",
        "sync_phase",
        "tally",
    )

    def __init__(self, group_id: str, tally: Tally) -> None:
        """Make an Empty group of generation 0. Whoever puts it among others counts it."""
        self.group_id = group_id
        self.tally = tally
        """Where its shard counts states and members."""
        # Saved: written by apply alone.
        self.saved: GroupRecord | None = None
        self.offsets: dict[str, dict[int, SavedOffset]] = {}
        self.offset_bytes = 0
        """An upper bound of the offsets when they are saved, their metadata not counted."""
        self.offset_metadata_bytes = 0
        """The same of their metadata."""
        self.assigned_bytes = 0
        """The same of the assignments that are saved."""
        # Live.
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = -1
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.pending_members: dict[str, Deadline] = {}
        """Ids handed out by MEMBER_ID_REQUIRED that have not joined yet (KIP-394)."""
        self.pending_sync: set[str] = set()
        self.subscribed_topics: frozenset[str] | None = None
        """What the members of this generation subscribe to; None: not known
        (docs/spec/offsets.md#delete).
        """
        self.support: Counter[str] = Counter()
        """How many members offer each protocol."""
        self.parked_joins = 0
        self.size_bytes = MEMBER_OVERHEAD_BYTES + 6 * len(group_id)
        """An upper bound of the group's record without assignments."""
        # The rebalance that is running.
        self.is_initial_rebalance = False
        self.new_member_added = False
        self.initial_delay_left_ms = 0
        self.rebalance_started_ms = 0
        self.join_phase = Deadline(DeadlineKind.JOIN_PHASE, (group_id, ""))
        self.sync_phase = Deadline(DeadlineKind.SYNC_PHASE, (group_id, ""))

    # --- state ---

    def transition_to(self, state: GroupState, wall_ms: int) -> None:
        """Enter a state; the table says from where that is possible."""
        assert self.state in PREDECESSORS[state], f"{self.state} -> {state}"
        self.tally.move(self.state, state)
        self.state = state
        self.state_timestamp_ms = wall_ms

    def next_generation(self) -> None:
        """Begin the next generation; after the largest comes 1, for 0 and less mean "none"
        (docs/spec/groups.md#generations).
        """
        self.generation_id = 1 if self.generation_id == MAX_GENERATION else self.generation_id + 1

    def all_joined(self) -> bool:
        """Every member is parked in the join phase, and no handed-out id is outstanding."""
        return self.parked_joins == len(self.members) and not self.pending_members

    def largest_rebalance_timeout_ms(self) -> int:
        """How long a phase may last: the largest rebalance timeout among the members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # --- members ---

    def identity_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether a request speaks for a member of this group (docs/spec/joining.md#join-group,
        "identity check").
        """
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return _NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: tuple[JoinProtocol, ...]) -> bool:
        """Whether a member offering these may be in the group (docs/spec/joining.md#join-group
        step 7).
        """
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        everyone = len(self.members)
        return any(self.support[p.name] == everyone for p in protocols)

    def add(self, member: Member) -> None:
        """Take a member in; the first fixes the protocol type, and leads where nobody does."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self.tally.members += 1
        self._count(member, 1)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Let a member go. Its parked requests must have been answered, its deadline cleared."""
        assert member.parked_join is None, "a parked join would never be answered"
        assert member.parked_sync is None, "a parked sync would never be answered"
        del self.members[member.member_id]
        self.tally.members -= 1
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        self._count(member, -1)
        self.pending_sync.discard(member.member_id)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def replace(self, old: Member, member: Member) -> None:
        """Give a static member's place, in every role, to its new id (KIP-345)."""
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

    def set_protocols(self, member: Member, protocols: tuple[JoinProtocol, ...]) -> None:
        """Replace what a member offers."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def _count(self, member: Member, sign: int) -> None:
        for protocol in member.protocols:
            self.support[protocol.name] += sign
            if not self.support[protocol.name]:
                del self.support[protocol.name]
        self.size_bytes += sign * member.size_bytes()
        self.tally.metadata_bytes += sign * metadata_bytes(member.protocols)

    def park_join(self, member: Member, ticket: Ticket) -> Ticket | None:
        """Hold a member's join; gives back the one that was held before."""
        superseded, member.parked_join = member.parked_join, ticket
        if superseded is None:
            self.parked_joins += 1
        return superseded

    def release_join(self, member: Member) -> Ticket | None:
        """Take a member's parked join out, to answer it."""
        ticket, member.parked_join = member.parked_join, None
        if ticket is not None:
            self.parked_joins -= 1
        return ticket

    def select_protocol(self) -> str:
        """The protocol of the next generation: the most voted for among those that all support.

        Each member votes for the first it lists; between equals the first voted for wins, so the
        choice does not depend on chance (Kafka: ClassicGroup.selectProtocol; ties are arbitrary
        there).
        """
        everyone = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(p.name for p in member.protocols if self.support[p.name] == everyone)] += 1
        return max(votes, key=votes.__getitem__)

    def members_for_leader(self) -> tuple[JoinedMember, ...]:
        """All members with their metadata for the chosen protocol, as the leader is shown them."""
        return tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(self.protocol_name))
            for m in self.members.values()
        )

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The union of the members' subscriptions; None where they cannot be read, or are too many
        names to read them while others wait. Then every topic counts as subscribed.
        """
        if self.protocol_type != CONSUMER:
            return None
        try:
            return all_subscribed_topics(
                [member.metadata(self.protocol_name) for member in self.members.values()]
            )
        except ConsumerProtocolError:
            return None

    # --- saved ---

    def to_record(self) -> GroupRecord:
        """What is to be saved of the group now (docs/spec/groups.md#restart)."""
        return GroupRecord(
            self.group_id,
            self.protocol_type,
            self.generation_id,
            self.protocol_name,
            self.leader_id,
            self.state_timestamp_ms,
            tuple(
                SavedMember(
                    m.member_id,
                    m.group_instance_id,
                    m.client.client_id,
                    m.client.client_host,
                    m.rebalance_timeout_ms,
                    m.session_timeout_ms,
                    m.metadata(self.protocol_name),
                    m.assignment,
                )
                for m in self.members.values()
            ),
        )

    def to_saved(self) -> SavedGroup:
        """Everything that is saved of the group."""
        return SavedGroup(self.group_id, self.saved, self.offsets)

    def restore(self) -> None:
        """Make the live state from what is saved, as after a restart: Stable with members, else
        Empty.
        """
        saved = self.saved
        if saved is None:
            return
        self.protocol_type = saved.protocol_type
        self.protocol_name = saved.protocol_name
        self.generation_id = saved.generation_id
        self.state_timestamp_ms = saved.state_timestamp_ms
        for kept in saved.members:
            # Of a member's protocols only the chosen one is saved; it says the others when it
            # rejoins.
            member = Member(
                self.group_id,
                kept.member_id,
                kept.group_instance_id,
                Client(kept.client_id, kept.client_host),
            )
            member.session_timeout_ms = kept.session_timeout_ms
            member.rebalance_timeout_ms = kept.rebalance_timeout_ms
            member.protocols = (JoinProtocol(saved.protocol_name or "", kept.subscription),)
            member.assignment = kept.assignment
            self.add(member)
        self.leader_id = saved.leader_id
        self.subscribed_topics = self.compute_subscribed_topics()
        state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.tally.move(self.state, state)
        self.state = state

    def saved_bytes(self) -> int:
        """An upper bound of what the group takes when it is saved."""
        return (
            self.size_bytes + self.assigned_bytes + self.offset_bytes + self.offset_metadata_bytes
        )

    def offset_count(self) -> int:
        """How many offsets are committed."""
        return sum(map(len, self.offsets.values()))

    def stored_offsets(self) -> Iterator[tuple[str, int, SavedOffset]]:
        """Every committed offset: (topic, partition, offset)."""
        for topic, partitions in self.offsets.items():
            for partition, offset in partitions.items():
                yield topic, partition, offset
