"""Reconciliation of groups: nobody shares a partition, and it ends once all send heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from groupkeeper.coordinator.core.consumer.reconciliation import (
    MemberTarget,
    ReconciliationState,
    reconcile,
)
from groupkeeper.coordinator.core.consumer_records import AssignedFields
from tests.helpers.core.examples import examples
from tests.helpers.core.held_partitions import by_topic, flat, held, targeted

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

    from tests.helpers.core.held_partitions import Partition

STEADY = settings(max_examples=examples(200), derandomize=True, deadline=None, database=None)
PARTITIONS = [(topic, number) for topic in "ab" for number in range(4)]
TOPICS = [set("ab"), set("a"), set("b"), set()]
BOOLEANS, EPOCHS = st.booleans(), st.integers(1, 5)
OWNERS = st.lists(st.integers(0, 3), min_size=8, max_size=8)
WAITS = st.sampled_from([ReconciliationState.STABLE, ReconciliationState.UNRELEASED_PARTITIONS])
ROUNDS = 4
"""A round to acknowledge an earlier target, one to learn what to give up, one to acknowledge that,
and one to get what others gave up."""


def owned_by(member: AssignedFields) -> set[Partition]:
    """The partitions that nobody else may get: assigned, or not yet given up."""
    return {*flat(member.assigned), *flat(member.revoking)}


class Group:
    """A group of three members, and what each client holds.

    A client holds a partition from the reply that gives it until the reply that takes it away.
    """

    def __init__(self, members: list[AssignedFields]) -> None:
        self.members = members
        self.held = [owned_by(member) for member in members]
        self.epoch = max(member.epoch for member in members)
        self.targets: list[set[Partition]] = [{*flat(member.assigned)} for member in members]
        self.topics = [set("ab") for _ in members]

    def retarget(self, targets: list[set[Partition]]) -> None:
        self.epoch += 1
        self.targets = targets

    def heartbeat(
        self, at: int, *, reports: bool = True, is_lost: bool = False, **changes: Any
    ) -> None:
        """One heartbeat. ``is_lost``: the client does not get the reply."""
        before = self.members[at]
        changed = self.topics[at] != changes.get("topics", self.topics[at])
        self.topics[at] = changes.get("topics", self.topics[at])
        taken = {partition for member in self.members for partition in owned_by(member)}
        after = reconcile(
            before,
            MemberTarget(self.epoch, targeted(self.targets[at]), self.topics[at]),
            by_topic(self.held[at]) if reports else None,
            by_topic(taken),
            subscription_changed=changed,
        )
        self.members[at] = after
        assert before.epoch <= after.epoch <= self.epoch
        assert after is before or after.previous_epoch == before.epoch
        self.check()
        if not is_lost:
            self.held[at] = {*flat(after.assigned)}
            self.check()

    def check(self) -> None:
        """Assert that nobody shares a partition, in the group and among the clients."""
        for owned in (
            [owned_by(member) for member in self.members],
            self.held,
        ):
            assert sum(map(len, owned)) == len(set().union(*owned)), owned
        for member in self.members:
            is_unrevoked = member.state == ReconciliationState.UNREVOKED_PARTITIONS
            assert bool(member.revoking) is is_unrevoked
            assert not flat(member.assigned).keys() & flat(member.revoking).keys()

    def wanted(self) -> Iterator[set[Partition]]:
        for target, topics in zip(self.targets, self.topics, strict=True):
            yield {partition for partition in target if partition[0] in topics}


@st.composite
def shares(draw: DrawFn) -> list[set[Partition]]:
    """The partitions, divided among three members and nobody."""
    owners = draw(OWNERS)
    return [{p for p, o in zip(PARTITIONS, owners, strict=True) if o == at} for at in range(3)]


SHARES = shares()
HAPPENINGS = st.tuples(
    st.integers(0, 2), st.booleans(), st.booleans(), st.sampled_from(TOPICS), st.booleans()
)
"""A member, whether it reports and its reply is lost, its topics, and whether targets change."""


@st.composite
def groups(draw: DrawFn) -> Group:
    """Groups in any state that the rules can lead to."""
    members = []
    for owned in draw(SHARES):
        revoking = {p for p in sorted(owned) if draw(BOOLEANS)} if draw(BOOLEANS) else set()
        waits = draw(WAITS)
        state = ReconciliationState.UNREVOKED_PARTITIONS if revoking else waits
        epoch = draw(EPOCHS)
        parts = held(sorted(owned - revoking), epoch), held(sorted(revoking), epoch)
        members.append(AssignedFields(state, epoch, epoch - 1, *parts))
    return Group(members)


GROUPS = groups()


@STEADY
@given(group=GROUPS, target=SHARES, data=st.data())
def test_it_ends_once_all_send_heartbeats(group: Group, target: list[set[Partition]], data: Any):
    group.retarget(target)
    for _ in range(ROUNDS):
        for at in data.draw(st.permutations(range(3))):
            group.heartbeat(at)
    for member, wanted in zip(group.members, group.wanted(), strict=True):
        assert (member.state, member.epoch) == (ReconciliationState.STABLE, group.epoch)
        assert {*flat(member.assigned)} == wanted
    assert group.held == list(group.wanted())


@STEADY
@given(group=GROUPS, data=st.data())
def test_nobody_shares_a_partition_whatever_happens(group: Group, data: Any):
    """Targets change at any moment, subscriptions too, and replies are lost."""
    for _ in range(20):
        at, reports, is_lost, topics, retargets = data.draw(HAPPENINGS)
        if retargets:
            group.retarget(data.draw(SHARES))
        group.heartbeat(at, reports=reports, is_lost=is_lost, topics=topics)
    group.retarget(data.draw(SHARES))
    for _ in range(ROUNDS):
        for at in range(3):
            group.heartbeat(at)
    assert [{*flat(member.assigned)} for member in group.members] == list(group.wanted())


@STEADY
@given(group=GROUPS, target=SHARES, data=st.data())
def test_a_heartbeat_that_follows_no_news_changes_nothing(
    group: Group, target: list[set[Partition]], data: Any
):
    group.retarget(target)
    for _ in range(ROUNDS):
        for at in range(3):
            group.heartbeat(at)
    at = data.draw(st.integers(0, 2))
    before = group.members[at]
    group.heartbeat(at, reports=data.draw(st.booleans()))
    assert group.members[at] is before
