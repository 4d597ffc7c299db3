"""Bugs in the membership of groups, and in the events about members.

The table of ``breakages`` includes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from groupkeeper.coordinator.core.classic import behaviour, membership, rebalance
from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import Event, MemberEvicted
from groupkeeper.coordinator.core.requests.membership import LeaveGroupResult
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.coordinator.runtime.slot import Slot

Patch = pytest.MonkeyPatch


def _evictions_are_told(patch: Patch, times: int) -> None:
    event = ShardState.event

    def told(self: ShardState, fact: Event) -> None:
        for _ in range(times if isinstance(fact, MemberEvicted) else 1):
            event(self, fact)

    patch.setattr(ShardState, "event", told)


def evictions_are_told_twice(patch: Patch) -> None:
    _evictions_are_told(patch, 2)


def evictions_are_not_told(patch: Patch) -> None:
    _evictions_are_told(patch, 0)


def evictions_are_written_twice(patch: Patch) -> None:
    """The runtime writes an eviction twice."""
    chosen = Slot._events_to_write

    def twice(self: Slot, events: list[Event]) -> list[Event]:
        written = chosen(self, events)
        return written + [event for event in written if isinstance(event, MemberEvicted)]

    patch.setattr(Slot, "_events_to_write", twice)


def who_leaves_stays(patch: Patch) -> None:
    leave = membership._leave

    def forgetful(*arguments: Any) -> Any:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(rebalance, "remove_member", lambda *_: None)
            return leave(*arguments)

    patch.setattr(membership, "_leave", forgetful)


def who_leaves_stays_untold(patch: Patch) -> None:
    """A LeaveGroup is answered, but the member stays."""

    def nothing(shard: ShardState, group: ClassicGroup, leaving: Any, request: Any) -> Any:
        return group.identity_error(leaving.member_id, leaving.group_instance_id)

    patch.setattr(membership, "_leave", nothing)


def leave_does_not_wait(patch: Patch) -> None:
    reply = ShardState.reply

    def hasty(self: ShardState, ticket: Any, result: Any, waits: bool = True) -> None:
        reply(self, ticket, result, waits and not isinstance(result, LeaveGroupResult))

    patch.setattr(ShardState, "reply", hasty)


def who_was_replaced_is_unknown(patch: Patch) -> None:
    """A replaced static member gets an answer that makes it join again and take its place back."""
    identity_error = ClassicGroup.identity_error

    def without(self: ClassicGroup, member_id: str, group_instance_id: str | None) -> ErrorCode:
        error = identity_error(self, member_id, group_instance_id)
        is_fenced = error is ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.UNKNOWN_MEMBER_ID if is_fenced else error

    patch.setattr(ClassicGroup, "identity_error", without)


def anybody_commits(patch: Patch) -> None:
    """Anybody who names the right generation is accepted."""
    judge = ClassicGroup.commit_error
    identity_error = ClassicGroup.identity_error

    def lenient(self: ClassicGroup, request: Any) -> ErrorCode:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(ClassicGroup, "identity_error", lambda *_: ErrorCode.NONE)
            error = judge(self, request)
        if identity_error(self, request.member_id, None):
            patch.setattr(ClassicGroup, "commit_restarts_session", lambda _: False)
        return error

    patch.setattr(ClassicGroup, "commit_error", lenient)


def metadata_of_a_rejoin_is_lost(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "set_protocols", lambda *_: None)


def static_members_are_put_out(patch: Patch) -> None:
    """Members that did not rejoin before the end of the join phase stay."""
    complete = rebalance.complete_join_phase

    def strict(shard: ShardState, group: ClassicGroup) -> None:
        for member in list(group.members.values()):
            if member.group_instance_id is not None and member.parked_join is None:
                rebalance.evict(shard, group, member, "join_timeout")
        complete(shard, group)

    patch.setattr(rebalance, "complete_join_phase", strict)


def type_of_an_empty_group_is_not_loaded(patch: Patch) -> None:
    """A group whose members left looks like one that never had members."""
    restore = behaviour.restore

    def forgetful(group: ClassicGroup) -> None:
        restore(group)
        if not group.members:
            group.protocol_type = None

    patch.setattr(behaviour, "restore", forgetful)


def one_member_subscribes_for_all(patch: Patch) -> None:
    compute = rebalance.subscribed_topics

    def of_the_first(group: ClassicGroup) -> frozenset[str] | None:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(group, "members", dict([*group.members.items()][:1]))
            return compute(group)

    patch.setattr(rebalance, "subscribed_topics", of_the_first)


MEMBERS: Final[dict[str, tuple[Callable[[Patch], None], str]]] = {
    "an eviction that is told twice": (evictions_are_told_twice, "told to have gone"),
    "an eviction that is written twice": (evictions_are_written_twice, "made was"),
    "an eviction that nobody is told of": (evictions_are_not_told, "told to have gone: {}"),
    "a member that leaves and stays": (who_leaves_stays, "told to have gone|stays"),
    "a member that leaves by the answer alone": (who_leaves_stays_untold, "said to have left"),
    "a leave that does not wait for its record": (leave_does_not_wait, "does not wait"),
    "a static member that was replaced and is told that it is unknown": (
        who_was_replaced_is_unknown,
        "is FENCED_INSTANCE_ID",
    ),
    "a commit of anybody who names the generation": (anybody_commits, "is answered.*, is "),
    "metadata of a rejoin that is lost": (metadata_of_a_rejoin_is_lost, "is shown"),
    "a static member that a join phase puts out": (
        static_members_are_put_out,
        "is static, and has until its session ends",
    ),
    "an Empty group whose type is not loaded": (type_of_an_empty_group_is_not_loaded, "at rest as"),
    "one member that subscribes for all": (one_member_subscribes_for_all, "is taken to consume"),
}
"""As ``breakages.BREAKAGES``."""
