"""Bugs that are found by accounting: for answers that are owed, for the records of steps and of the
store, for generations, for deleted offsets and the requests to delete them.

The table of ``breakages`` includes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from groupkeeper.coordinator.core.classic import rebalance
from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.classic.member import ClassicMember
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import Event, MemberEvicted, OffsetDeleted, OffsetExpired
from groupkeeper.coordinator.core.groups.lost_offsets import StoredOffset
from groupkeeper.coordinator.core.offsets import deletion
from groupkeeper.coordinator.core.offsets import sweep as topic_sweep
from groupkeeper.coordinator.core.requests.membership import Heartbeat, LeaveGroupResult
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.runtime import gathering, lane
from groupkeeper.coordinator.runtime.gathering import Append
from groupkeeper.coordinator.runtime.lane import Lane
from groupkeeper.coordinator.runtime.slot import Slot, Write

Patch = pytest.MonkeyPatch


def superseded_join_is_not_answered(patch: Patch) -> None:
    park = ClassicGroup.park_join

    def forgetful(self: ClassicGroup, member: ClassicMember, ticket: Any) -> None:
        park(self, member, ticket)

    patch.setattr(ClassicGroup, "park_join", forgetful)


def fenced_call_is_not_answered(patch: Patch) -> None:
    """The parked join or sync of a replaced static member is not answered."""

    def forgetful(shard: ShardState, group: ClassicGroup, member: ClassicMember) -> None:
        group.release_join(member)
        member.parked_sync = None

    patch.setattr(rebalance, "fence_parked", forgetful)


def leave_is_let_out(patch: Patch) -> None:
    """The runtime answers a LeaveGroup before its record is durable."""
    carry_out = Slot.carry_out

    def hasty(self: Slot, step: Any) -> None:
        step.replies = [
            msgspec.structs.replace(reply, waits=not isinstance(reply.result, LeaveGroupResult))
            for reply in step.replies
        ]
        carry_out(self, step)

    patch.setattr(Slot, "carry_out", hasty)


def evictions_are_lost(patch: Patch) -> None:
    """The runtime drops events of evictions."""
    chosen = Slot._events_to_write

    def forgetful(self: Slot, events: list[Event]) -> list[Event]:
        return [e for e in chosen(self, events) if not isinstance(e, MemberEvicted)]

    patch.setattr(Slot, "_events_to_write", forgetful)


def riders_are_lost(patch: Patch) -> None:
    """Events without a record are lost if the gathering append has records."""
    add_events = Lane.add_events

    def forgetful(self: Lane, slot: Slot, events: list[Event]) -> None:
        if self._gathering is None or not self._gathering.requests:
            add_events(self, slot, events)

    patch.setattr(Lane, "add_events", forgetful)


def generation_is_used_again(patch: Patch) -> None:
    """In a group with a static member a generation is used twice."""
    advance = ClassicGroup.next_generation

    def lazy(self: ClassicGroup) -> None:
        if not self.static_members or not self.generation_id:
            advance(self)

    patch.setattr(ClassicGroup, "next_generation", lazy)


def sweep_takes_a_topic_that_stands(patch: Patch) -> None:
    is_gone = topic_sweep._is_gone

    def greedy(shard: ShardState, topic: str, topic_id: str) -> bool:
        if is_gone(shard, topic, topic_id):
            return True
        return bool(topic_id) and shard.image.by_id[topic_id].partitions > 7

    patch.setattr(topic_sweep, "_is_gone", greedy)


def sweep_takes_offsets_without_an_id(patch: Patch) -> None:
    """Offsets without an id are deleted if no topic of their name is known yet."""
    is_gone = topic_sweep._is_gone

    def greedy(shard: ShardState, topic: str, topic_id: str) -> bool:
        is_unknown = topic not in shard.image.by_name
        return is_gone(shard, topic, topic_id) if topic_id else is_unknown

    patch.setattr(topic_sweep, "_is_gone", greedy)


def offsets_without_an_id_take_none(patch: Patch) -> None:
    patch.setattr(topic_sweep, "_id_of", lambda *_: "")


def deletion_takes_more_than_it_names(patch: Patch) -> None:
    """A deletion of one partition deletes all partitions of the topic."""
    remove = deletion._remove

    def greedy(shard: ShardState, group: ClassicGroup, lost: Any, *rest: Any) -> None:
        named = {topic for topic, _, _ in lost}
        going: list[StoredOffset] = [row for row in group.stored_offsets() if row[0] in named]
        remove(shard, group, going, *rest)

    patch.setattr(deletion, "_remove", greedy)


def losses_are_not_told(patch: Patch) -> None:
    event = ShardState.event

    def silent(self: ShardState, fact: Event) -> None:
        if not isinstance(fact, OffsetDeleted | OffsetExpired):
            event(self, fact)

    patch.setattr(ShardState, "event", silent)


def zombies_go_on(patch: Patch) -> None:
    """A heartbeat of another generation is answered NONE."""
    judge = ClassicGroup.generation_error

    def lenient(*arguments: Any) -> ErrorCode:
        error = judge(*arguments)
        return ErrorCode.NONE if error is ErrorCode.ILLEGAL_GENERATION else error

    patch.setattr(ClassicGroup, "generation_error", lenient)


def heartbeats_of_a_loading_shard_are_of_nobody(patch: Patch) -> None:
    patch.setattr(Heartbeat, "while_loading", ErrorCode.UNKNOWN_MEMBER_ID)


def what_waited_goes_out_backwards(patch: Patch) -> None:
    release = Slot.release

    def backwards(self: Slot, write: Write) -> None:
        write.replies.reverse()
        release(self, write)

    patch.setattr(Slot, "release", backwards)


class _Heard(Append):
    """An append whose result counts even after it was abandoned."""

    abandoned = property(lambda _: False, lambda _, __: None)  # type: ignore[assignment]


def append_that_was_given_up_is_heard(patch: Patch) -> None:
    for module in (gathering, lane):
        patch.setattr(module, "Append", _Heard)


ACCOUNTS: Final[dict[str, tuple[Callable[[Patch], None], str]]] = {
    "a join or sync that is fenced and not answered": (fenced_call_is_not_answered, "are owed"),
    "a join that is superseded and not answered": (superseded_join_is_not_answered, "are owed"),
    "a leave that is let out ahead of its record": (leave_is_let_out, "answered ahead of"),
    "evictions that are lost on the way": (evictions_are_lost, "made was|never stored"),
    "events that are lost on the way": (riders_are_lost, "made was|never stored"),
    "a generation that is used again": (generation_is_used_again, "after generation"),
    "a heartbeat of another generation": (zombies_go_on, "is told to go on"),
    "a sweep that takes a topic that stands": (sweep_takes_a_topic_that_stands, "topic stands"),
    "a sweep that takes offsets without an id": (
        sweep_takes_offsets_without_an_id,
        "nobody has deleted the topic",
    ),
    "offsets without an id that take none": (offsets_without_an_id_take_none, "have no topic id"),
    "a deletion that takes more than it names": (
        deletion_takes_more_than_it_names,
        "nobody asked for",
    ),
    "an offset that goes without a word": (losses_are_not_told, "offsets that went"),
    "heartbeats that a loading shard knows nobody for": (
        heartbeats_of_a_loading_shard_are_of_nobody,
        "by no shard",
    ),
    "answers that waited and go out backwards": (
        what_waited_goes_out_backwards,
        "behind one that was given later",
    ),
    "an append that is heard after it was given up": (
        append_that_was_given_up_is_heard,
        "were taken for failed",
    ),
}
"""As ``breakages.BREAKAGES``."""
