"""A classic group: its saved state, and the live state that a failover may lose.

See docs/design.md#hard-state. Only ``ShardState.apply`` replaces ``saved`` and ``offsets``.
Everything else is live, and is rebuilt from the saved state when a shard loads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from groupkeeper.coordinator.core.deadlines import Deadline, DeadlineKind
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberFields, of_client
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.groups.census import Tally
from groupkeeper.coordinator.core.groups.transitions import PREDECESSORS
from groupkeeper.coordinator.core.records import GroupRecord, SavedGroup, SavedOffset
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import JoinedMember, JoinProtocol
from groupkeeper.coordinator.core.step import Ticket

CONSUMER = "consumer"
"""The protocol type whose metadata we can decode. The metadata of others, like Connect, is opaque.
"""

MAX_GENERATION = 2**31 - 1

_NONE: Final = ErrorCode.NONE
"""A local name, since every request needs it: looking up an enum member costs 70 ns."""

MEMBER_OVERHEAD_BYTES = 512
"""The size that a member adds to a record, without its strings and bytes. It is deliberately too
high.
"""

SAVED_OFFSET_BYTES: Final = 128
"""An upper bound of one saved offset, without its metadata."""

_SAVED_TOPIC_BYTES: Final = 16
"""An upper bound of one saved topic, without its name and its offsets."""

_SHORT_CHARS: Final = 32
_LONGEST_ESCAPE: Final = 6
"""Bytes that one character can have in JSON."""
_ESCAPED: Final = bytes(range(32)) + b'"\\\x7f'
"""Characters whose JSON may differ from their UTF-8."""


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
        """True in the member's first join phase: its session may end while its join is parked."""
        self.join_time_ms: int | None = None
        """When this member id was created (wall clock); None after a load."""
        self.session = Deadline(DeadlineKind.SESSION, (group_id, member_id))
        self.session_length_ms = 0
        """Length of the current session. A new member's first session has the new-member timeout.
        """

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for one protocol; empty if the member does not offer it."""
        return next((p.metadata for p in self.protocols if p.name == protocol_name), b"")

    def size_bytes(self) -> int:
        """Return an upper bound of the size that this member adds to a record, without its
        assignment.
        """
        return member_bytes(
            self.member_id, self.group_instance_id, self.client.client_id, self.protocols
        )


def member_bytes(
    member_id: str,
    group_instance_id: str | None,
    client_id: str,
    protocols: tuple[JoinProtocol, ...],
) -> int:
    """Return an upper bound of the size that such a member adds to a record or to its join event.

    The record has the metadata of one protocol; the event has the names of all.
    """
    largest = max((len(p.metadata) for p in protocols), default=0)
    text = len(member_id) + len(group_instance_id or "") + len(client_id)
    text += sum(len(p.name) for p in protocols)
    return MEMBER_OVERHEAD_BYTES + 6 * text + encoded_bytes(largest)


def encoded_bytes(length: int) -> int:
    """Return an upper bound of the size of ``length`` bytes in an encoded record (base64)."""
    return length * 4 // 3 + 4


def metadata_bytes(protocols: tuple[JoinProtocol, ...]) -> int:
    """Return the size of a member's metadata for all protocols that it offers."""
    return sum([len(protocol.metadata) for protocol in protocols])


def text_bytes(text: str) -> int:
    """Return an upper bound of a text's size in JSON. For long texts it is close."""
    if len(text) <= _SHORT_CHARS:
        return _LONGEST_ESCAPE * len(text)
    data = text.encode()
    escaped = len(data) - len(data.translate(None, _ESCAPED))
    return len(data) + (_LONGEST_ESCAPE - 1) * escaped


def topic_bytes(topic: str) -> int:
    """Return an upper bound of a topic's size in a saved group, without its offsets."""
    return _SAVED_TOPIC_BYTES + _LONGEST_ESCAPE * len(topic)


def offset_bytes(metadata: str) -> int:
    """Return an upper bound of an offset's size in a saved group."""
    return SAVED_OFFSET_BYTES + text_bytes(metadata)


class Group:
    """A classic group, saved and live."""

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
        """Create an Empty group of generation 0. The caller counts it in the tally."""
        self.group_id = group_id
        self.tally = tally
        """The shard's counts of states and members."""
        # Saved: only apply writes these.
        self.saved: GroupRecord | None = None
        self.offsets: dict[str, dict[int, SavedOffset]] = {}
        self.offset_bytes = 0
        """An upper bound of the saved offsets' size, without their metadata."""
        self.offset_metadata_bytes = 0
        """An upper bound of the size of the saved offsets' metadata."""
        self.assigned_bytes = 0
        """An upper bound of the size of the saved assignments."""
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
        """Ids returned with MEMBER_ID_REQUIRED whose members have not joined yet (KIP-394)."""
        self.pending_sync: set[str] = set()
        self.subscribed_topics: frozenset[str] | None = None
        """The topics that the members of this generation subscribe to, or None if they are unknown.

        See docs/spec/offsets.md#delete.
        """
        self.support: Counter[str] = Counter()
        """How many members offer each protocol."""
        self.parked_joins = 0
        self.size_bytes = MEMBER_OVERHEAD_BYTES + 6 * len(group_id)
        """An upper bound of the group's record without assignments."""
        # The current rebalance.
        self.is_initial_rebalance = False
        self.new_member_added = False
        self.initial_delay_left_ms = 0
        self.rebalance_started_ms = 0
        self.join_phase = Deadline(DeadlineKind.JOIN_PHASE, (group_id, ""))
        self.sync_phase = Deadline(DeadlineKind.SYNC_PHASE, (group_id, ""))

    # --- state ---

    def transition_to(self, state: GroupState, wall_ms: int) -> None:
        """Enter a state. The table says from which states this is allowed."""
        assert self.state in PREDECESSORS[state], f"{self.state} -> {state}"
        self.tally.move(self.state, state)
        self.state = state
        self.state_timestamp_ms = wall_ms

    def next_generation(self) -> None:
        """Begin the next generation. After the largest number comes 1: 0 and negative mean "none".

        See docs/spec/groups.md#generations.
        """
        self.generation_id = 1 if self.generation_id == MAX_GENERATION else self.generation_id + 1

    def all_joined(self) -> bool:
        """Return whether every member's join is parked and no id is pending."""
        return self.parked_joins == len(self.members) and not self.pending_members

    def largest_rebalance_timeout_ms(self) -> int:
        """Return the largest rebalance timeout of the members, which bounds a phase."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # --- members ---

    def identity_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return the error if a request is not from a member of this group.

        See docs/spec/joining.md#join-group, "identity check".
        """
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return _NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def supports(self, protocol_type: str, protocols: tuple[JoinProtocol, ...]) -> bool:
        """Return whether a member with these protocols may be in the group.

        See docs/spec/joining.md#join-group, step 7.
        """
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        everyone = len(self.members)
        return any(self.support[p.name] == everyone for p in protocols)

    def add(self, member: Member) -> None:
        """Add a member. It becomes the leader if there is none."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self.tally.members += 1
        self._count(member, 1)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member. The caller has answered its parked requests and cleared its deadline."""
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
        """Move every role of a static member to its new id (KIP-345)."""
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
        """Replace the protocols that a member offers."""
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
        """Park a member's join. Return the join that was parked before, if any."""
        superseded, member.parked_join = member.parked_join, ticket
        if superseded is None:
            self.parked_joins += 1
        return superseded

    def release_join(self, member: Member) -> Ticket | None:
        """Remove a member's parked join and return it, so that the caller can answer it."""
        ticket, member.parked_join = member.parked_join, None
        if ticket is not None:
            self.parked_joins -= 1
        return ticket

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members support.

        Each member votes for the first protocol that it lists. If two have equal votes, the one
        that got its first vote earlier wins, so the result is deterministic. In Kafka ties are
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

    def event_fields(self, member: Member, client: Client) -> MemberFields:
        """Return the fields of an event that name a member. ``client`` is the one that caused the
        event.
        """
        return {
            "group_id": self.group_id,
            "generation_id": self.generation_id,
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            **of_client(client),
        }

    # --- saved ---

    def to_saved(self) -> SavedGroup:
        """Return everything that is saved of the group."""
        return SavedGroup(self.group_id, self.saved, self.offsets)

    def saved_bytes(self) -> int:
        """Return an upper bound of the size of the saved group."""
        return (
            self.size_bytes + self.assigned_bytes + self.offset_bytes + self.offset_metadata_bytes
        )

    def offset_count(self) -> int:
        """Return the number of committed offsets."""
        return sum(map(len, self.offsets.values()))

    def stored_offsets(self) -> Iterator[tuple[str, int, SavedOffset]]:
        """Yield every committed offset: (topic, partition, offset)."""
        for topic, partitions in self.offsets.items():
            for partition, offset in partitions.items():
                yield topic, partition, offset
