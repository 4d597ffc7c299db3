"""A group of any type: its offsets, its members, and the methods that each type implements.

See docs/design.md#hard-state: only ``ShardState.apply`` changes the offsets and the saved state of
the members. Each type of groups is a subclass in its own package. Other packages call the methods
of ``Group``, and do not read the attributes of a subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from groupkeeper.coordinator.core.compiling import mypyc_attr
from groupkeeper.coordinator.core.consumer_records import ConsumerChange
from groupkeeper.coordinator.core.deadlines import Deadline, DeadlineKind
from groupkeeper.coordinator.core.dispatch import HANDLERS, Handler
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import MemberFields
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.groups.census import CHARS_OF_A_GROUP, Tally
from groupkeeper.coordinator.core.records import GroupMetadata, SavedGroup, SavedOffset
from groupkeeper.coordinator.core.requests.admin import ListedGroup
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit, OffsetFetch
from groupkeeper.coordinator.core.step import Ticket

GROUP_OVERHEAD_BYTES: Final = 512
"""An upper bound of the size of a group's record without its id and its members."""


SAVED_OFFSET_BYTES: Final = 128
"""An upper bound of the size of one saved offset, without its metadata."""

_SAVED_TOPIC_BYTES: Final = 16
"""An upper bound of the size of one saved topic, without its name and its offsets."""

ID_REPEATS: Final = 4
"""The largest number of times that one step has the id of a group for each member. A member that
leaves a consumer group has it in two records (of the member and of its pattern) and in two events.
"""

_LONG_ID_CHARS: Final = 256
"""Clients have group ids of up to 249 characters. A longer one is counted."""

_SHORT_CHARS: Final = 32
"""A longer text gets a close upper bound, and a shorter text only a rough one."""
_LONGEST_ESCAPE: Final = 6
"""The largest number of bytes that one character can have in JSON."""
_ESCAPED: Final = bytes(range(32)) + b'"\\\x7f'
"""ASCII characters whose JSON may differ from their UTF-8."""


def text_bytes(text: str) -> int:
    """Return an upper bound of a text's size in JSON. For long texts it is close to the real
    size.
    """
    if len(text) <= _SHORT_CHARS:
        return _LONGEST_ESCAPE * len(text)
    data = text.encode()
    escaped = len(data) - len(data.translate(None, _ESCAPED))
    return len(data) + (_LONGEST_ESCAPE - 1) * escaped


def repeated_id_bytes(group_id: str) -> int:
    """Return the size that a long group id adds to the largest step, for each member of the group.

    Each record and event of a member has the id of its group: if many members leave with one
    request, one step repeats the id for each. The overhead of a member has room for ids of up to
    ``_LONG_ID_CHARS``.
    """
    if len(group_id) <= _LONG_ID_CHARS:
        return 0
    return ID_REPEATS * (text_bytes(group_id) - _LONG_ID_CHARS)


def topic_bytes(topic: str) -> int:
    """Return an upper bound of a topic's size in a saved group, without its offsets."""
    return _SAVED_TOPIC_BYTES + _LONGEST_ESCAPE * len(topic)


def offset_bytes(metadata: str) -> int:
    """Return an upper bound of an offset's size in a saved group."""
    return SAVED_OFFSET_BYTES + text_bytes(metadata)


class OffsetExpiry(NamedTuple):
    """The offsets of a group that can expire, and the time when their retention begins."""

    since_ms: int | None
    """When the retention of all offsets began. None: the retention of each offset began with its
    commit."""
    kept_topics: frozenset[str]
    """Topics whose offsets are kept, because members consume them."""


@mypyc_attr(allow_interpreted_subclasses=True)  # a type of groups need not be compiled
class Member:
    """The common part of members of all types of groups: an identity, a client and a session."""

    __slots__ = (
        "client",
        "group_instance_id",
        "member_id",
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
        self.session = Deadline(DeadlineKind.SESSION, (group_id, member_id))
        self.session_length_ms = 0
        """Length of the current session. A new member's first session has the new-member timeout.
        """


@mypyc_attr(allow_interpreted_subclasses=True)  # a type of groups need not be compiled
class Group(ABC):
    """A group of any type."""

    __slots__ = (
        "assigned_bytes",
        "group_id",
        "group_type",
        "handlers",
        "members",
        "offset_bytes",
        "offset_metadata_bytes",
        "offsets",
        "reserved_bytes",
        "size_bytes",
        "static_members",
        "tally",
    )

    def __init__(self, group_id: str, group_type: GroupType, tally: Tally) -> None:
        """Create a group without members and offsets. ``count`` adds the group to the tally."""
        self.group_id = group_id
        self.group_type = group_type
        self.tally = tally
        """The shard's counts of states and members."""
        self.handlers: dict[type, Handler] = HANDLERS[group_type]
        """Type of a request -> the function that handles it for this group."""
        # Saved: only apply writes these.
        self.offsets: dict[str, dict[int, SavedOffset]] = {}
        self.offset_bytes = 0
        """An upper bound of the saved offsets' size, without their metadata."""
        self.offset_metadata_bytes = 0
        """An upper bound of the size of the saved offsets' metadata."""
        self.assigned_bytes = 0
        """An upper bound of the size of the saved assignments."""
        self.reserved_bytes = 0
        """The room for assignments that this group has of the limit for all groups."""
        # Not saved.
        self.members: dict[str, Any] = {}
        """Member id -> member, of the class that the type of the group has."""
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.size_bytes = GROUP_OVERHEAD_BYTES + 6 * len(group_id)
        """An upper bound of the size of the group's record, without assignments."""

    # --- members ---

    def hold(self, member: Member) -> None:
        """Add a member to the group and to the tally."""
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self.tally.members += 1

    def drop(self, member: Member) -> None:
        """Remove a member from the group and from the tally."""
        del self.members[member.member_id]
        self.tally.members -= 1
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]

    def count_state(self, old: GroupState, new: GroupState) -> None:
        """Count in the tally that the group moves from one state to another."""
        by_state = self.tally.by_state
        by_state[self.group_type, old] -= 1
        by_state[self.group_type, new] += 1

    def count(self) -> None:
        """Add the group to the tally."""
        self.tally.groups += 1
        self.tally.for_long_ids += len(self.group_id) // CHARS_OF_A_GROUP
        self.tally.by_state[self.group_type, self.state_name()] += 1

    def uncount(self) -> None:
        """Remove the group from the tally. The group must not be used any more."""
        tally = self.tally
        tally.groups -= 1
        tally.for_long_ids -= len(self.group_id) // CHARS_OF_A_GROUP
        tally.by_state[self.group_type, self.state_name()] -= 1
        tally.reserved_bytes -= self.reserved_bytes
        tally.members -= len(self.members)
        tally.metadata_bytes -= self.metadata_bytes()

    def take_offsets(self, group: Group) -> None:
        """Use the offsets of ``group``, which this group replaces because its type changed."""
        self.offsets = group.offsets
        self.offset_bytes = group.offset_bytes
        self.offset_metadata_bytes = group.offset_metadata_bytes

    def event_fields(self, member: Member, client: Client) -> MemberFields:
        """Return the fields of an event that name a member. ``client`` is the client that caused
        the event.
        """
        return {
            "group_id": self.group_id,
            "group_type": self.group_type,
            "generation_id": self.epoch_of(member),
            "member_id": member.member_id,
            "group_instance_id": member.group_instance_id,
            "client_id": client.client_id,
            "client_host": client.client_host,
            "principal": client.principal,
        }

    # --- what each type implements ---

    def change(self, record: ConsumerChange) -> None:
        """Apply a record that changes one thing of a consumer group. Only ``ShardState.apply``
        calls it.

        Other types of groups ignore the record: a load may read records from before the group
        changed its type.
        """
        return

    def admits_older_epoch(
        self, request: OffsetCommit, partitions: Iterable[tuple[str, int]]
    ) -> bool:
        """Return True if a commit with an older epoch may still store offsets of these partitions
        (KIP-1251). Each is (topic id, number). Called if ``commit_error`` has returned an error.
        """
        return False

    @abstractmethod
    def state_name(self) -> GroupState:
        """Return the state of the group, as clients see it."""

    @abstractmethod
    def epoch(self) -> int:
        """Return the generation of a classic group, or the group epoch of a consumer group."""

    @abstractmethod
    def epoch_of(self, member: Any) -> int:
        """Return the generation of a classic group, or the member epoch in a consumer group."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return True if the group is in the state Empty. Only then may it be deleted."""

    @abstractmethod
    def listed(self) -> ListedGroup:
        """Return the fields of the group in the answer to ListGroups."""

    @abstractmethod
    def commit_error(self, request: OffsetCommit) -> ErrorCode:
        """Return the error if the sender may not commit, else NONE
        (docs/spec/offsets.md#who-may-commit).
        """

    @abstractmethod
    def commit_restarts_session(self) -> bool:
        """Return whether a valid commit of a member restarts its session."""

    @abstractmethod
    def fetch_error(self, request: OffsetFetch) -> ErrorCode:
        """Return the error if the member that the request names may not fetch, else NONE.

        See docs/spec/offsets.md#fetch, step 4.
        """

    @abstractmethod
    def offset_delete_error(self) -> ErrorCode:
        """Return the error if nobody may delete offsets now, else NONE
        (docs/spec/offsets.md#delete).
        """

    @abstractmethod
    def subscribes_to(self, topic: str) -> bool:
        """Return whether members subscribe to a topic; True if their subscriptions are unknown."""

    @abstractmethod
    def offset_expiry(self) -> OffsetExpiry | None:
        """Return which offsets can expire now; None if none can (docs/spec/offsets.md#expiry)."""

    @abstractmethod
    def parked(self) -> Iterable[Ticket]:
        """Return the tickets of the requests that wait in the group."""

    @abstractmethod
    def deadlines(self) -> Iterable[Deadline]:
        """Return every deadline of the group and of its members."""

    @abstractmethod
    def metadata_bytes(self) -> int:
        """Return the size of the metadata of all members in bytes."""

    @abstractmethod
    def save(self, record: GroupMetadata | None) -> None:
        """Replace all saved state except the offsets. If ``record`` is None, the group has only
        offsets. Only ``ShardState.apply`` calls it.
        """

    @abstractmethod
    def to_saved(self) -> SavedGroup:
        """Return the group and its offsets in the form that storage saves."""

    # --- sizes and offsets ---

    def saved_bytes(self) -> int:
        """Return an upper bound of the size of the saved group."""
        return (
            self.size_bytes + self.assigned_bytes + self.offset_bytes + self.offset_metadata_bytes
        )

    def repeated_bytes(self) -> int:
        """Return the size that a long id adds to the largest step of the group
        (``repeated_id_bytes``).
        """
        return len(self.members) * repeated_id_bytes(self.group_id)

    def reserve(self, reserved_bytes: int) -> None:
        """Set the room for assignments that this group has, here and in the tally."""
        self.tally.reserved_bytes += reserved_bytes - self.reserved_bytes
        self.reserved_bytes = reserved_bytes

    def offset_count(self) -> int:
        """Return the number of committed offsets."""
        return sum(map(len, self.offsets.values()))

    def stored_offsets(self) -> Iterator[tuple[str, int, SavedOffset]]:
        """Yield every committed offset: (topic, partition, offset)."""
        for topic, partitions in self.offsets.items():
            for partition, offset in partitions.items():
                yield topic, partition, offset
