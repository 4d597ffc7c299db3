"""The nodes of a mirrored group."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ConsumerGroupRecord,
    ConsumerMemberFields,
    SavedConsumerMember,
)
from groupkeeper.coordinator.core.records import SavedGroup, SavedOffset
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from groupkeeper.storage.backends.mirror.mirrored import (
    NO_NODES,
    MirroredSubscription,
    mirrored_group,
    registration,
)
from groupkeeper.storage.backends.zookeeper.names import is_node_name
from tests.helpers.core.records import TOPIC_ID, group_record


def saved_offset(offset: int) -> SavedOffset:
    return SavedOffset(offset, -1, "", 0, -1, "")


def test_members_of_the_classic_protocol_have_subscriptions_and_partitions() -> None:
    group = group_record("g", members=2)
    first = replace(
        group.members[0],
        subscription=encode_subscription(Subscription(3, ["b", "a"])),
        assignment=encode_assignment(ConsumerAssignment(3, {"a": [0, 7], "x/y": [1]})),
    )
    unreadable = group.members[1]
    saved = SavedGroup("g", replace(group, members=(first, unreadable)), {})
    found = mirrored_group(saved, {}, is_node_name)
    assert found.ids == {"m-0": MirroredSubscription("static", ("b", "a"))}
    assert found.owners == {"a/0": "m-0", "a/7": "m-0"}


def test_members_of_another_protocol_type_are_left_out() -> None:
    group = replace(group_record("g"), protocol_type="connect")
    assert mirrored_group(SavedGroup("g", group, {}), {}, is_node_name) == NO_NODES


def test_members_of_consumer_groups_own_what_they_still_have_to_revoke() -> None:
    other = "another-id"
    members = (
        SavedConsumerMember(
            ConsumerMemberFields("a"),
            0,
            AssignedFields(1, 2, 1, {TOPIC_ID: ((0, 2),), other: ((9, 2),)}, {TOPIC_ID: ((3, 1),)}),
        ),
        SavedConsumerMember(
            ConsumerMemberFields("b", subscribed_topic_regex="x.*"), 1, AssignedFields(0, 0, 0)
        ),
        SavedConsumerMember(ConsumerMemberFields("c/d"), 0, AssignedFields(0, 0, 0)),
    )
    record = ConsumerGroupRecord("g", subscriptions=(("orders",), ()), members=members)
    found = mirrored_group(SavedGroup("g", record, {}), {TOPIC_ID: "orders"}, is_node_name)
    assert found.ids == {
        "a": MirroredSubscription("static", ("orders",)),
        "b": MirroredSubscription("white_list", ("x.*",)),
    }
    assert found.owners == {"orders/0": "a", "orders/3": "a"}


def test_a_group_of_offsets_alone_has_those_with_names_of_nodes() -> None:
    offsets = {"orders": {3: saved_offset(42)}, "a/b": {0: saved_offset(1)}}
    found = mirrored_group(SavedGroup("g", None, offsets), {}, is_node_name)
    assert found == ({}, {}, {"orders/3": 42})


@pytest.mark.parametrize("pattern", ["static", "white_list"])
def test_a_registration_is_that_of_kazoo_go(pattern: str) -> None:
    data = registration(MirroredSubscription(pattern, ("b", "a", "é")), 1_700_000_000)
    assert data.decode() == (
        f'{{"pattern":"{pattern}","subscription":{{"a":1,"b":1,"é":1}},'
        '"timestamp":1700000000,"version":1}'
    )
    assert json.loads(data)["version"] == 1
