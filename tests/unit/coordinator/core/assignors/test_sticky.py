"""The sticky assignor."""

from __future__ import annotations

from groupkeeper.coordinator.core.assignors.sticky import StickyAssignor
from groupkeeper.coordinator.core.assignors.types import MemberSubscription, TopicPartition


def a_topic(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def members_of(topic: str, *names: str) -> list[MemberSubscription]:
    return [MemberSubscription(name, [topic]) for name in names]


ORDERS = a_topic("orders", 0, 1, 2, 3, 4, 5)


def test_without_a_previous_assignment_partitions_are_dealt_in_turn():
    assignment = StickyAssignor().assign(members_of("orders", "a", "b"), ORDERS)
    assert assignment == {"a": a_topic("orders", 0, 2, 4), "b": a_topic("orders", 1, 3, 5)}


def test_a_joining_member_gets_its_share_and_nothing_else_moves():
    previous = {"a": a_topic("orders", 0, 2, 4), "b": a_topic("orders", 1, 3, 5)}
    assignment = StickyAssignor().assign_with_previous(
        members_of("orders", "a", "b", "c"), ORDERS, previous
    )
    assert assignment == {
        "a": a_topic("orders", 0, 2),
        "b": a_topic("orders", 1, 3),
        "c": a_topic("orders", 4, 5),
    }


def test_what_a_member_leaves_behind_is_shared_and_nothing_else_moves():
    previous = {name: a_topic("orders", n, n + 3) for n, name in enumerate("abc")}
    assignment = StickyAssignor().assign_with_previous(
        members_of("orders", "a", "c"), ORDERS, previous
    )
    assert assignment == {"a": a_topic("orders", 0, 1, 3), "c": a_topic("orders", 2, 4, 5)}


def test_the_extra_partition_stays_with_the_member_that_has_it():
    partitions = a_topic("orders", 0, 1, 2)
    previous = {"a": a_topic("orders", 0), "b": a_topic("orders", 1, 2)}
    assignment = StickyAssignor().assign_with_previous(
        members_of("orders", "a", "b"), partitions, previous
    )
    assert assignment == previous


def test_new_partitions_go_to_those_who_have_least():
    previous = {"a": a_topic("orders", 0, 1), "b": a_topic("orders", 2)}
    assignment = StickyAssignor().assign_with_previous(
        members_of("orders", "a", "b"), a_topic("orders", 0, 1, 2, 3), previous
    )
    assert assignment == {"a": a_topic("orders", 0, 1), "b": a_topic("orders", 2, 3)}


def test_what_previous_says_of_things_that_are_gone_is_passed_over():
    previous = {
        "gone": a_topic("orders", 0),
        "a": [*a_topic("orders", 1, 99), *a_topic("returns", 0)],
        "b": a_topic("deleted", 0),
    }
    partitions = a_topic("orders", 0, 1) + a_topic("returns", 0)
    assignment = StickyAssignor().assign_with_previous(
        members_of("orders", "a", "b"), partitions, previous
    )
    assert assignment == {"a": a_topic("orders", 1), "b": a_topic("orders", 0)}


def test_a_partition_that_two_members_claim_stays_with_the_first():
    previous = {"b": a_topic("orders", 0, 1), "a": a_topic("orders", 0)}
    assignment = StickyAssignor().assign_with_previous(
        members_of("orders", "a", "b"), a_topic("orders", 0, 1), previous
    )
    assert assignment == {"a": a_topic("orders", 0), "b": a_topic("orders", 1)}


def test_a_member_that_may_have_less_leaves_more_to_the_others():
    members = [MemberSubscription("a", ["orders"]), MemberSubscription("b", ["orders", "returns"])]
    partitions = a_topic("orders", 0, 1) + a_topic("returns", 0, 1)
    assignment = StickyAssignor().assign(members, partitions)
    assert assignment == {"a": a_topic("orders", 0, 1), "b": a_topic("returns", 0, 1)}


def test_load_is_shifted_along_a_chain_of_members():
    """Nothing can go from a to c at once: b gives up one of its own for one of a's."""
    members = [
        MemberSubscription("a", ["orders"]),
        MemberSubscription("b", ["orders", "returns"]),
        MemberSubscription("c", ["returns"]),
    ]
    partitions = a_topic("orders", 0, 1, 2) + a_topic("returns", 0, 1)
    previous = {"a": a_topic("orders", 0, 1, 2), "b": a_topic("returns", 0, 1)}
    assignment = StickyAssignor().assign_with_previous(members, partitions, previous)
    assert sorted(len(assigned) for assigned in assignment.values()) == [1, 2, 2]
    assert set(assignment["a"]) <= set(previous["a"])


def test_a_member_subscribed_to_nothing_is_in_the_result_with_nothing():
    members = [*members_of("orders", "a"), MemberSubscription("b", [])]
    assignment = StickyAssignor().assign_with_previous(members, ORDERS, {"b": ORDERS})
    assert assignment == {"a": ORDERS, "b": []}


def test_no_members_make_an_empty_assignment():
    assert StickyAssignor().assign_with_previous([], ORDERS, {"a": ORDERS}) == {}
