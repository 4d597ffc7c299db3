"""What a group may take as a whole: beyond it an offset is refused, and nothing else is."""

from __future__ import annotations

import msgspec
import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.group import (
    SAVED_OFFSET_BYTES,
    text_bytes,
    topic_bytes,
)
from groupkeeper.coordinator.core.records import (
    OffsetsCommitted,
    SavedGroup,
    SavedOffset,
    SavedOffsets,
)
from groupkeeper.coordinator.core.requests.offsets import OffsetDelete
from tests.helpers.core.shard_driver import (
    CLIENT,
    SESSION_MS,
    a_member,
    a_stable_group,
    completing,
    stable,
)

NONE, FULL = ErrorCode.NONE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE
LIMIT = 20_000


@pytest.fixture
def driver(make_driver):
    """A driver whose groups may take 20,000 bytes."""
    return make_driver(max_group_bytes=LIMIT)


def notes(*partitions, size=4_000, character="x", topic="orders"):
    return [(topic, "", [(n, n, -1, character * size) for n in partitions])]


def merged(*topics):
    """Several entries of one topic as one."""
    return ("orders", "", [part for _, _, parts in topics for part in parts])


def errors(call):
    return {partition: error for (_, partition), error in call.partition_errors().items()}


def filled(driver):
    """Fill a group to the last byte; returns the partitions that have 4,000 characters."""
    call = driver.commit("g", notes(*range(10)))
    group = driver.shard.groups["g"]
    room = LIMIT - group.saved_bytes() - SAVED_OFFSET_BYTES
    assert errors(driver.commit("g", notes(10, size=room))) == {10: NONE}
    assert group.saved_bytes() == LIMIT
    return [n for n, error in errors(call).items() if error is NONE]


def test_a_commit_stores_what_fits_and_refuses_the_partitions_that_do_not(driver):
    call = driver.commit("g", [merged(*notes(0, 1, 2, 3, 4, 5), *notes(6, size=0))])
    assert errors(call) == {0: NONE, 1: NONE, 2: NONE, 3: NONE, 4: FULL, 5: FULL, 6: NONE}
    assert sorted(driver.fetch("g").offsets()) == [("orders", n) for n in (0, 1, 2, 3, 6)]


def test_the_name_of_a_new_topic_takes_room_too(driver):
    """1,000 topics of one partition are mostly names."""
    filled(driver)
    group = driver.shard.groups["g"]
    driver.send(OffsetDelete("g", [("orders", [0])], CLIENT))
    room = LIMIT - group.saved_bytes()
    fits = room - SAVED_OFFSET_BYTES - topic_bytes("payments")
    too_long = driver.commit("g", notes(0, size=fits + 1, topic="payments"))
    assert errors(too_long) == {0: FULL}
    assert errors(driver.commit("g", notes(0, size=fits, topic="payments"))) == {0: NONE}
    assert group.saved_bytes() == LIMIT


def test_nothing_of_a_refused_partition_is_in_the_record(driver):
    driver.commit("g", notes(*range(12)))
    (record,) = driver.records
    assert [part[0] for topic in record.topics for part in topic.partitions] == [0, 1, 2, 3]


def test_a_commit_of_which_nothing_fits_writes_nothing_and_keeps_the_session(driver):
    leader, _ = a_stable_group(driver)
    leader.commit(notes(*range(12)))
    since = len(driver.records)
    for _ in range(2):
        driver.advance(SESSION_MS - 1)
        assert errors(leader.commit(notes(11))) == {11: FULL}
    assert driver.records_of(OffsetsCommitted, since) == []
    assert leader.member_id in driver.shard.groups["g"].members


def test_at_the_bound_an_offset_may_be_committed_again_with_no_more_than_it_has(driver):
    held = filled(driver)
    assert set(errors(driver.commit("g", notes(*held))).values()) == {NONE}
    assert set(errors(driver.commit("g", notes(*held, size=10))).values()) == {NONE}
    assert errors(driver.commit("g", notes(11, size=2_000))) == {11: NONE}


def test_at_the_bound_more_metadata_is_refused_and_the_offset_stays(driver):
    (first, *_) = filled(driver)
    assert errors(driver.commit("g", notes(first, size=4_001))) == {first: FULL}
    assert driver.fetch("g").offsets()["orders", first] == first


def test_other_groups_have_room_of_their_own(driver):
    filled(driver)
    assert errors(driver.commit("h", notes(0))) == {0: NONE}


def test_deleting_offsets_makes_room(driver):
    first, second, *_ = filled(driver)
    assert errors(driver.commit("g", notes(10, 11))) == {10: FULL, 11: FULL}
    driver.send(OffsetDelete("g", (("orders", [first, second]),), CLIENT))
    assert errors(driver.commit("g", notes(10, 11))) == {10: NONE, 11: NONE}


def test_a_partition_that_is_named_twice_counts_once_with_its_largest(driver):
    topic = merged(*notes(0, 1, 2, 3, size=3_000), *notes(0, 1, 2, 3, size=4_000))
    assert set(errors(driver.commit("g", [topic])).values()) == {NONE}
    for twice in ((10, 4_000), (4_000, 10)):
        topic = merged(*(entry for size in twice for entry in notes(4, size=size)))
        assert errors(driver.commit("g", [topic])) == {4: FULL}
    assert ("orders", 4) not in driver.fetch("g").offsets()


def test_an_offset_named_small_and_then_large_frees_no_room_for_others(driver):
    """Else every such commit would make the group larger, without end."""
    held = filled(driver)
    entry = merged(*notes(*held, size=0), *notes(11), *notes(*held))
    found = errors(driver.commit("g", [entry]))
    assert found == {**dict.fromkeys(held, NONE), 11: FULL}
    assert driver.shard.groups["g"].saved_bytes() == LIMIT


def test_what_is_committed_keeps_no_consumer_out_of_its_group(driver):
    filled(driver)
    assert stable(driver, a_member(driver), a_member(driver))


def test_members_count_for_what_may_be_committed_beside_them(driver):
    (leader,) = completing(driver, a_member(driver))
    leader.sync({leader.member_id: b"x" * 6_000})
    assert errors(leader.commit(notes(0, 1, 2, 3))) == {0: NONE, 1: NONE, 2: FULL, 3: FULL}


def test_assignments_larger_than_a_group_are_refused(driver):
    (leader,) = completing(driver, a_member(driver))
    call = leader.sync({leader.member_id: b"x" * LIMIT})
    assert call.error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_group_that_was_loaded_beyond_the_bound_serves_and_can_be_made_smaller(driver):
    offsets = {n: SavedOffset(n, -1, "x" * 4_000, 0, -1, "") for n in range(6)}
    more = {n: SavedOffset(n, -1, "x" * 4_000, 0, -1, "") for n in range(6, 12)}
    driver.load(SavedGroup("g", None, {"orders": offsets}), SavedOffsets("g", {"orders": more}))
    assert len(driver.fetch("g").offsets()) == 12
    assert errors(driver.commit("g", notes(0, size=4_001))) == {0: FULL}
    assert errors(driver.commit("g", notes(0, size=4_000))) == {0: NONE}
    assert set(errors(driver.commit("g", notes(*range(12), size=0))).values()) == {NONE}
    assert errors(driver.commit("g", notes(0))) == {0: NONE}


@pytest.mark.parametrize("character", ["x", "é", "😀", "\x00", "\x7f", '"', "\\", "\u2028"])
def test_no_group_is_larger_than_its_bound_once_it_is_encoded(driver, character):
    for size in range(0, 4_000, 130):
        driver.commit("g", notes(*range(12), size=size, character=character))
        driver.commit("g", notes(*range(12), size=size, character=character, topic="payments"))
    group = driver.shard.saved("g")
    assert len(msgspec.json.encode(group)) <= LIMIT
    assert driver.shard.groups["g"].saved_bytes() <= LIMIT


@pytest.mark.parametrize("character", ["x", "é", "😀", "\x00", "\x7f", '"', "\\", "\u2028"])
@pytest.mark.parametrize("length", [0, 1, 32, 33, 1_000])
def test_what_a_text_is_said_to_take_is_never_too_little(character, length):
    text = character * length
    assert text_bytes(text) >= len(msgspec.json.encode(text)) - 2


def test_a_long_plain_text_is_said_to_take_what_it_takes():
    assert text_bytes("x" * 4_096) == 4_096
