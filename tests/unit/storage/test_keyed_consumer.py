"""A consumer group from its small records is the one that a whole record has."""

from __future__ import annotations

from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ConsumerCurrentAssignment,
    ConsumerGroupEpoch,
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberFields,
    ConsumerMemberRemoved,
    ConsumerTarget,
    PatternTopics,
    ResolvedPattern,
    SavedConsumerMember,
)
from groupkeeper.coordinator.core.records import GroupRecord, SavedGroup
from groupkeeper.storage.keyed import KeyedRecords

TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"


def member(member_id: str, *names: str, regex: str | None = None) -> ConsumerMemberFields:
    return ConsumerMemberFields(
        member_id, subscribed_topic_names=names, subscribed_topic_regex=regex
    )


def kept(*records: object) -> SavedGroup | None:
    keyed = KeyedRecords()
    for record in records:
        keyed.apply(record)
    return keyed.saved("g")


CHANGES = (
    ConsumerGroupRecord("g"),
    ConsumerGroupEpoch("g", 3, 77),
    ConsumerMember("g", member("a", "orders", regex="o.*")),
    ConsumerMember("g", member("b", "orders")),
    ConsumerMember("g", member("gone", "orders")),
    ConsumerTarget("g", 3, 1_000, {"a": {TOPIC: (0, 1)}, "gone": {TOPIC: (2,)}}),
    ConsumerTarget("g", 4, 2_000, {"b": {TOPIC: (2,)}}),
    ConsumerCurrentAssignment("g", "a", AssignedFields(0, 3, 0, {TOPIC: ((0, 3), (1, 3))})),
    ConsumerMemberRemoved("g", "gone"),
    ResolvedPattern("g", "o.*", PatternTopics(("orders",), 1, 1_000)),
    ResolvedPattern("g", "x", PatternTopics((), 1, 1_000)),
    ResolvedPattern("g", "x", None),
)
WHOLE = ConsumerGroupRecord(
    "g",
    3,
    77,
    4,
    2_000,
    (("orders",),),
    (
        SavedConsumerMember(
            member("a", regex="o.*"),
            0,
            AssignedFields(0, 3, 0, {TOPIC: ((0, 3), (1, 3))}),
            {TOPIC: (0, 1)},
        ),
        SavedConsumerMember(member("b"), 0, AssignedFields(0, 0, -1), {TOPIC: (2,)}),
    ),
    {"o.*": PatternTopics(("orders",), 1, 1_000)},
)


def test_small_records_add_up_to_the_whole_record_with_equal_subscriptions_once() -> None:
    assert kept(*CHANGES) == SavedGroup("g", WHOLE, {})


def test_a_whole_record_leads_to_itself() -> None:
    assert kept(WHOLE) == SavedGroup("g", WHOLE, {}) == kept(SavedGroup("g", WHOLE, {}))


def test_the_last_whole_record_decides_the_type() -> None:
    classic = GroupRecord("g", "consumer", 1, None, None, 0, ())
    assert kept(*CHANGES, classic) == SavedGroup("g", classic, {})
    assert kept(classic, WHOLE) == SavedGroup("g", WHOLE, {})
