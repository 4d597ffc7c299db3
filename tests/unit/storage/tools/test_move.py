"""When two values count as equal in a move."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ConsumerCurrentAssignment,
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberFields,
    ConsumerTarget,
    PatternTopics,
    ResolvedPattern,
)
from groupkeeper.coordinator.core.records import Record, SavedGroup
from groupkeeper.storage.codec.records import decode_saved
from groupkeeper.storage.keyed import KeyedRecords
from groupkeeper.storage.tools.move import canonical
from tests.helpers.core.record_model import RecordModel
from tests.helpers.core.records import TOPIC_ID, commit

OTHER_ID = "AAAAAAAAAAAAAAAAAAAABA"
CHANGES: list[Record] = [
    ConsumerMember("g", ConsumerMemberFields("a", subscribed_topic_names=("t", "u"))),
    ConsumerMember("g", ConsumerMemberFields("b", subscribed_topic_names=("t",))),
    ConsumerMember("g", ConsumerMemberFields("c", subscribed_topic_regex="t.*")),
    ConsumerTarget("g", 2, 1_000, {"a": {TOPIC_ID: (0, 1), OTHER_ID: (3,)}, "b": {TOPIC_ID: (2,)}}),
    ConsumerCurrentAssignment(
        "g", "a", AssignedFields(1, 2, 1, {TOPIC_ID: ((0, 2),), OTHER_ID: ((3, 2),)})
    ),
    ResolvedPattern("g", "t.*", PatternTopics(("t",), 3, 1_000)),
    ResolvedPattern("g", "u.*", PatternTopics(("u",), 3, 1_000)),
    commit("g", 5, topic="t", partitions=3),
    commit("g", 6, topic="u", partitions=2),
]


def saved_of(changes: list[Record]) -> SavedGroup:
    keyed = KeyedRecords()
    keyed.apply(ConsumerGroupRecord("g"))
    for record in changes:
        keyed.apply(record)
    found = keyed.saved("g")
    assert found is not None
    return found


@given(st.permutations(CHANGES))
def test_equal_groups_have_equal_bytes_whatever_the_order_of_their_parts(
    changes: list[Record],
) -> None:
    assert canonical(saved_of(changes)) == canonical(saved_of(CHANGES))


def test_the_bytes_lead_to_the_same_group() -> None:
    group = saved_of(CHANGES)
    first, second = RecordModel(), RecordModel()
    first.apply_all(0, [group])
    second.apply_all(0, [decode_saved(canonical(group))])
    assert first.keys == second.keys


def test_groups_that_differ_have_different_bytes() -> None:
    bytes_of = {canonical(saved_of(CHANGES[:end])) for end in range(len(CHANGES) + 1)}
    assert len(bytes_of) == len(CHANGES) + 1


def test_a_topic_without_offsets_is_no_difference() -> None:
    assert canonical(SavedGroup("g", None, {"t": {}})) == canonical(SavedGroup("g", None, {}))
