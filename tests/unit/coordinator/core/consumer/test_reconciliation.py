"""One step of reconciliation, rule by rule (docs/spec/consumer-groups.md#reconciliation).

The cases are those of Kafka's AssignedFieldsBuilderTest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from groupkeeper.coordinator.core.consumer.reconciliation import (
    MemberTarget,
    ReconciliationState,
    reconcile,
)
from groupkeeper.coordinator.core.consumer_records import AssignedFields
from tests.helpers.core.held_partitions import by_topic, flat, held, targeted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.helpers.core.held_partitions import Partition

STABLE = ReconciliationState.STABLE
UNREVOKED = ReconciliationState.UNREVOKED_PARTITIONS
UNRELEASED = ReconciliationState.UNRELEASED_PARTITIONS


def parts(text: str) -> set[Partition]:
    """``"a1 b2"`` are partition 1 of topic a, and partition 2 of topic b."""
    return {(word[0], int(word[1:])) for word in text.split()}


def current(
    state: ReconciliationState, assigned: str, revoking: str = "", *, epoch: int = 10
) -> AssignedFields:
    """A member that got all it has at its epoch."""
    return AssignedFields(
        state,
        epoch,
        epoch - 1,
        held(parts(assigned), epoch),
        held(parts(revoking), epoch),
    )


def step(
    member: AssignedFields,
    target: str,
    *,
    epoch: int = 11,
    owned: str | None = None,
    taken: Iterable[Partition] = (),
    topics: str = "abc",
    changed: bool = False,
) -> AssignedFields:
    """One heartbeat. ``taken`` is owned by others; what the member has is owned as well."""
    return reconcile(
        member,
        MemberTarget(epoch, targeted(parts(target)), set(topics)),
        None if owned is None else by_topic(parts(owned)),
        by_topic([*taken, *flat(member.assigned), *flat(member.revoking)]),
        subscription_changed=changed,
    )


def shown(
    member: AssignedFields,
) -> tuple[int, int, set[Partition], set[Partition]]:
    return member.state, member.epoch, {*flat(member.assigned)}, {*flat(member.revoking)}


def test_a_stable_member_at_the_epoch_of_its_target_is_left_alone() -> None:
    member = current(STABLE, "a1", epoch=11)
    assert step(member, "a1 a2") is member


def test_a_member_gets_what_is_free_and_its_epoch_moves() -> None:
    after = step(current(STABLE, "a1"), "a1 b1")
    assert shown(after) == (STABLE, 11, parts("a1 b1"), set())
    assert after.previous_epoch == 10
    assert after.assigned == {"a": ((1, 10),), "b": ((1, 11),)}


def test_a_member_whose_target_is_the_same_gets_the_new_epoch() -> None:
    assert shown(step(current(STABLE, "a1"), "a1")) == (STABLE, 11, parts("a1"), set())


@pytest.mark.parametrize("owned", [None, "a1 a2", "a2 c9"])
def test_a_member_that_must_give_up_partitions_keeps_its_epoch(owned: str | None) -> None:
    after = step(current(STABLE, "a1 a2"), "a1 b1", owned=owned)
    assert shown(after) == (UNREVOKED, 10, parts("a1"), parts("a2"))


def test_what_a_member_gave_up_before_it_was_told_needs_no_acknowledgement() -> None:
    after = step(current(STABLE, "a1 a2"), "a1 b1", owned="a1")
    assert shown(after) == (STABLE, 11, parts("a1 b1"), set())


@pytest.mark.parametrize("owned", [None, "a1 a2", "a2"])
def test_nothing_happens_before_the_acknowledgement(owned: str | None) -> None:
    member = current(UNREVOKED, "a1", "a2")
    assert step(member, "a1 b1", owned=owned) is member


def test_after_the_acknowledgement_the_member_gets_its_new_partitions() -> None:
    after = step(current(UNREVOKED, "a1", "a2"), "a1 b1", owned="a1")
    assert shown(after) == (STABLE, 11, parts("a1 b1"), set())


def test_a_newer_target_may_take_more_after_the_acknowledgement() -> None:
    after = step(current(UNREVOKED, "a1", "a2"), "b1", epoch=12, owned="a1")
    assert shown(after) == (UNREVOKED, 10, set(), parts("a1"))


def test_what_the_member_itself_gave_up_is_free_for_it() -> None:
    after = step(current(UNREVOKED, "a1", "a2"), "a1 a2", epoch=12, owned="a1")
    assert shown(after) == (STABLE, 12, parts("a1 a2"), set())
    assert after.assigned == {"a": ((1, 10), (2, 12))}


def test_a_member_waits_for_what_others_own() -> None:
    after = step(current(STABLE, "a1"), "a1 b1 b2", taken=parts("b1"))
    assert shown(after) == (UNRELEASED, 11, parts("a1 b2"), set())
    after = step(after, "a1 b1 b2", taken=parts("b1"))
    assert shown(after) == (UNRELEASED, 11, parts("a1 b2"), set())
    after = step(after, "a1 b1 b2")
    assert shown(after) == (STABLE, 11, parts("a1 b1 b2"), set())


def test_a_waiting_member_follows_a_newer_target() -> None:
    after = step(current(UNRELEASED, "a1 a2"), "a1", epoch=12, owned="a1 a2")
    assert shown(after) == (UNREVOKED, 10, parts("a1"), parts("a2"))


def test_a_target_in_a_topic_that_is_not_subscribed_counts_as_empty() -> None:
    after = step(current(STABLE, "a1 b1"), "a1 b1 c1", owned="a1 b1", topics="a")
    assert shown(after) == (UNREVOKED, 10, parts("a1"), parts("b1"))


# --- the subscription changed in this heartbeat ---


def test_unsubscribed_topics_are_cut_at_once() -> None:
    member = current(STABLE, "a1 b1", epoch=11)
    after = step(member, "a1 b1", owned="a1 b1", topics="a", changed=True)
    assert shown(after) == (UNREVOKED, 11, parts("a1"), parts("b1"))


def test_a_cut_that_the_member_made_before_leaves_state_and_epoch() -> None:
    member = current(STABLE, "a1 b1", epoch=11)
    after = step(member, "a1 b1", owned="a1", topics="a", changed=True)
    assert shown(after) == (STABLE, 11, parts("a1"), set())


def test_a_change_that_cuts_nothing_changes_nothing() -> None:
    member = current(STABLE, "a1", epoch=11)
    assert step(member, "a1", owned="a1", topics="ac", changed=True) is member


@pytest.mark.parametrize("owned", [None, ""])
def test_a_change_to_no_topic_ends_the_previous_epoch_even_of_a_member_with_nothing(
    owned: str | None,
) -> None:
    """As in Kafka: its next heartbeat must have the present epoch."""
    member = current(STABLE, "", epoch=11)
    after = step(member, "", owned=owned, topics="", changed=True)
    assert shown(after) == (STABLE, 11, set(), set())
    assert (member.previous_epoch, after.previous_epoch) == (10, 11)


@pytest.mark.parametrize("owned", [None, "a1 a2 b1"])
def test_a_cut_before_the_acknowledgement_makes_the_assignment_smaller(owned: str | None) -> None:
    member = current(UNREVOKED, "a1 b1", "a2")
    after = step(member, "a1 b1", owned=owned, topics="a", changed=True)
    assert shown(after) == (UNREVOKED, 10, parts("a1"), parts("a2 b1"))


def test_a_cut_of_a_topic_that_is_partly_given_up_already_waits_for_all_of_it() -> None:
    member = current(UNREVOKED, "a1 b1", "b2")
    after = step(member, "a1 b1", topics="a", changed=True)
    assert shown(after) == (UNREVOKED, 10, parts("a1"), parts("b1 b2"))


def test_a_change_in_the_heartbeat_that_acknowledges_is_part_of_the_next_step() -> None:
    member = current(UNREVOKED, "a1 b1", "a2")
    after = step(member, "a1 b1", owned="a1 b1", topics="a", changed=True)
    assert shown(after) == (UNREVOKED, 10, parts("a1"), parts("b1"))


def test_the_observed_sequence_of_a_member_that_shares_with_a_second_one() -> None:
    """docs/spec/consumer-groups.md#reconciliation, at its end."""
    first = current(STABLE, "a0 a1 a2 a3", epoch=2)
    second = AssignedFields(STABLE, 0, 0, {}, {})
    second = step(second, "a2 a3", epoch=3, taken=flat(first.assigned))
    assert shown(second) == (UNRELEASED, 3, set(), set())
    first = step(first, "a0 a1", epoch=3)
    assert shown(first) == (UNREVOKED, 2, parts("a0 a1"), parts("a2 a3"))
    first = step(first, "a0 a1", epoch=3, owned="a0 a1")
    assert shown(first) == (STABLE, 3, parts("a0 a1"), set())
    second = step(second, "a2 a3", epoch=3, taken=flat(first.assigned))
    assert shown(second) == (STABLE, 3, parts("a2 a3"), set())
