"""OffsetCommit: what may be committed (docs/spec/offsets.md#commit), who may commit
(#who-may-commit), for how long (#retention-time).
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import CommitRejected, GroupCreated
from groupkeeper.coordinator.core.offsets import sweep as topic_sweep
from groupkeeper.coordinator.core.records import OffsetsCommitted
from groupkeeper.coordinator.core.requests.client import Client
from tests.helpers.core.shard_driver import (
    CLIENT,
    ORDERS,
    PAYMENTS,
    SESSION_MS,
    a_member,
    a_stable_group,
    assignment_for,
    completing,
    heartbeat_through,
    stable,
)

OK = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ZERO_ID = ""


def one(call):
    """The only partition's error of a commit."""
    (error,) = call.partition_errors().values()
    return error


# --- What may be committed (docs/spec/offsets.md#commit) ---


def test_commit_is_stored_with_all_that_came_with_it(driver):
    """docs/spec/offsets.md#commit step 7: one record a request, which is an event too."""
    leader, _ = a_stable_group(driver, members=2)
    topics = [
        ("orders", "", [(0, 10, 5, "note"), (1, 20, -1, "")]),
        ("payments", "", [(3, 30, -1, None)]),
    ]
    who = Client("batch", "/10.9.8.7", "User:alice")
    since, events = len(driver.records), len(driver.events)
    call = leader.commit(topics, client=who)
    assert set(call.partition_errors().values()) == {OK}
    assert list(call.partition_errors()) == [("orders", 0), ("orders", 1), ("payments", 3)]
    (record,) = driver.records[since:]
    assert isinstance(record, OffsetsCommitted)
    assert (record.group_id, record.generation_id) == ("g", 1)
    assert (record.member_id, record.group_instance_id) == (leader.member_id, None)
    assert (record.client_id, record.client_host, record.principal) == who
    assert (record.commit_time_ms, record.expire_time_ms) == (driver.now.wall_ms, -1)
    assert [(t.topic, t.topic_id) for t in record.topics] == [ORDERS[:2], PAYMENTS[:2]]
    assert [p for t in record.topics for p in t.partitions] == [
        (0, 10, -1, 5, "note"),
        (1, 20, -1, -1, ""),
        (3, 30, -1, -1, ""),
    ]
    assert driver.events[events:] == []
    assert call.reply.waits is True


def test_commit_says_what_it_replaces(driver):
    driver.commit("g", {"orders": {0: 10}})
    driver.commit("g", {"orders": {0: 7, 1: 1}})
    (topic,) = driver.records_of(OffsetsCommitted)[-1].topics
    assert [p[:3] for p in topic.partitions] == [
        (0, 7, 10),
        (1, 1, -1),
    ]


def test_commit_to_a_topic_made_again_replaces_nothing(driver, monkeypatch):
    monkeypatch.setattr(topic_sweep, "MAX_OFFSETS_PER_STEP", 1)
    driver.commit("g", {"orders": {0: 10}})
    driver.commit("swept before it", {"orders": {0: 10}})
    driver.change_topics(ORDERS._replace(topic_id="made again"), PAYMENTS)
    assert driver.shard.saved("g").offsets, "it is to be swept later"
    driver.commit("g", {"orders": {0: 7}})
    (topic,) = driver.records_of(OffsetsCommitted)[-1].topics
    assert [p[1:3] for p in topic.partitions] == [(7, -1)]


def test_later_commit_wins_whatever_the_offset(driver):
    driver.commit("g", {"orders": {0: 10}})
    driver.commit("g", {"orders": {0: 3}})
    assert driver.fetch("g").offsets() == {("orders", 0): 3}


def test_partition_named_twice_in_a_request_keeps_the_last(driver):
    call = driver.commit("g", [("orders", "", [(0, 1, -1, ""), (0, 2, -1, "")])])
    assert set(call.partition_errors().values()) == {OK}
    assert driver.fetch("g").offsets() == {("orders", 0): 2}


TWICE = {
    "in one entry": [("orders", "", [(0, 20, -1, ""), (0, 10, -1, "")])],
    "in two": [("orders", "", [(0, 20, -1, "")]), ("orders", "", [(0, 10, -1, "")])],
}


@pytest.mark.parametrize("topics", TWICE.values(), ids=TWICE)
def test_an_end_outlives_a_commit_that_names_its_partition_twice(driver, topics):
    """What the second one replaces is what the first one brought, also for those who reload."""
    driver.commit("g", {"orders": {0: 8}})
    driver.commit("g", topics)
    record = driver.records_of(OffsetsCommitted)[-1]
    assert [p[2] for t in record.topics for p in t.partitions] == [8, 20]
    assert driver.shard.end_of(ORDERS.topic_id, 0) == 20
    driver.check_replay()


def test_a_partition_named_twice_is_found_in_any_order(driver):
    driver.commit("g", {"orders": {0: 8, 1: 8}})
    rows = [(1, 9, -1, ""), (0, 20, -1, ""), (1, 10, -1, "")]
    driver.commit("g", [("orders", "", rows)])
    (topic,) = driver.records_of(OffsetsCommitted)[-1].topics
    assert [p[2] for p in topic.partitions] == [8, 8, 9]
    driver.check_replay()


def test_unknown_topic_is_refused_and_its_neighbours_are_committed(driver):
    """docs/spec/offsets.md#commit step 3; rejected partitions come first, a topic once."""
    call = driver.commit("g", {"orders": {0: 1}, "nowhere": {0: 2}, "payments": {0: 3}})
    assert call.partition_errors() == {
        ("nowhere", 0): UNKNOWN_TOPIC,
        ("orders", 0): OK,
        ("payments", 0): OK,
    }
    assert driver.fetch("g").offsets() == {("orders", 0): 1, ("payments", 0): 3}


@pytest.mark.parametrize("partition", [12, 99, -1])
def test_partition_that_the_topic_lacks_is_refused_alone(driver, partition):
    """docs/spec/offsets.md#commit step 3."""
    call = driver.commit("g", {"orders": {0: 1, partition: 2, 11: 3}})
    assert call.partition_errors() == {
        ("orders", 0): OK,
        ("orders", partition): UNKNOWN_TOPIC,
        ("orders", 11): OK,
    }
    assert driver.fetch("g").offsets() == {("orders", 0): 1, ("orders", 11): 3}


@pytest.mark.parametrize("partition", [5, 11])
def test_partition_that_the_topic_lacks_by_now_is_refused_whatever_is_stored(driver, partition):
    """A host without topics of its own may name fewer partitions after a restart."""
    driver.commit("g", {"orders": {4: 1, partition: 1}})
    driver.change_topics(ORDERS._replace(partitions=5), PAYMENTS)
    call = driver.commit("g", {"orders": {4: 2, partition: 2}})
    assert call.partition_errors() == {("orders", 4): OK, ("orders", partition): UNKNOWN_TOPIC}


def test_rejected_partitions_are_listed_before_the_accepted_ones(driver):
    """docs/spec/offsets.md#commit, last sentences."""
    call = driver.commit("g", {"orders": {0: 1}, "nowhere": {0: 2}})
    assert [topic[0] for topic in call.result.topics] == ["nowhere", "orders"]


@pytest.mark.parametrize(
    ("more", "answered"),
    [
        ([], [("orders", [0, 1]), ("orders", [1])]),
        ([("nowhere", "", [(0, 1, -1, "")])], [("nowhere", [0]), ("orders", [0, 1, 1])]),
    ],
    ids=["as requested", "once, behind what is rejected early"],
)
def test_a_topic_that_is_named_twice_is_answered_as_kafka_merges_it(driver, more, answered):
    """Kafka's OffsetCommitResponse.Builder merges only into rejections that came early."""
    twice = [
        ("orders", "", [(0, 5, -1, ""), (1, 6, -1, "x" * 5_000)]),
        ("orders", "", [(1, 7, -1, "")]),
    ]
    call = driver.commit("g", twice + more)
    assert [(name, [row[0] for row in rows]) for name, _, rows in call.result.topics] == answered
    assert driver.fetch("g").offsets() == {("orders", 0): 5, ("orders", 1): 7}


def test_unknown_topic_ids_are_listed_before_the_accepted_ones(driver):
    """docs/spec/offsets.md#commit, last sentences."""
    nowhere = "BBBBBBBBBBBBBBBBBBBBBA"
    call = driver.commit("g", {ORDERS.topic_id: {0: 1}, nowhere: {0: 2}}, by_topic_id=True)
    assert [topic[1] for topic in call.result.topics] == [nowhere, ORDERS.topic_id]


BARE = ("orders", "", [])
NOWHERE = ("absent", "", [])
STORED = ("orders", "", [(0, 5, -1, "")])
BEYOND = ("orders", "", [(999, 5, -1, "")])


@pytest.mark.parametrize(
    ("topics", "answered"),
    [
        ([BARE], []),
        ([NOWHERE, BARE], [("absent", "", [])]),
        ([BARE, STORED, BARE], [("orders", "", [(0, OK)])]),
        ([STORED, BARE, NOWHERE], [("absent", "", []), ("orders", "", [(0, OK)])]),
        (
            [STORED, NOWHERE, BEYOND],
            [("absent", "", []), ("orders", "", [(999, UNKNOWN_TOPIC), (0, OK)])],
        ),
    ],
)
def test_a_topic_without_partitions_is_answered_as_kafka_does(driver, topics, answered):
    """One that is known is left out, one that is unknown is listed first."""
    assert driver.commit("g", topics).result.topics == answered


def test_so_it_is_where_the_group_refuses(driver):
    a_stable_group(driver)
    refused = driver.commit("g", [STORED, BARE, NOWHERE]).result
    assert refused.topics == [("absent", "", []), ("orders", "", [(0, UNKNOWN)])]
    refused = driver.commit("g", [BARE, STORED]).result
    assert refused.topics == [("orders", "", [(0, UNKNOWN)])]


def test_topic_named_twice_appears_once_in_the_reply(driver):
    """docs/spec/offsets.md#commit, last sentence."""
    topics = [
        ("orders", "", [(0, 1, -1, "")]),
        ("nowhere", "", [(0, 1, -1, "")]),
        ("orders", "", [(1, 1, -1, ""), (99, 1, -1, "")]),
    ]
    call = driver.commit("g", topics)
    assert sorted(topic[0] for topic in call.result.topics) == ["nowhere", "orders"]
    assert call.partition_errors() == {
        ("orders", 0): OK,
        ("orders", 1): OK,
        ("orders", 99): UNKNOWN_TOPIC,
        ("nowhere", 0): UNKNOWN_TOPIC,
    }


def test_topic_may_be_named_by_its_id(driver):
    """docs/spec/offsets.md#commit step 2 (v10): the reply names it by its id."""
    call = driver.commit("g", {ORDERS.topic_id: {0: 5}}, by_topic_id=True)
    assert one(call) is OK
    (topic,) = driver.records_of(OffsetsCommitted)[-1].topics
    assert (topic.topic, topic.topic_id) == ("orders", ORDERS.topic_id)
    assert driver.fetch("g").offsets() == {("orders", 0): 5}


@pytest.mark.parametrize("topic_id", ["BBBBBBBBBBBBBBBBBBBBBA", ZERO_ID], ids=["unknown", "zero"])
def test_unknown_topic_id_is_refused_and_its_neighbours_are_committed(driver, topic_id):
    """docs/spec/offsets.md#commit step 2 and docs/spec/edge-cases.md#edge-68."""
    call = driver.commit("g", {topic_id: {0: 5}, ORDERS.topic_id: {0: 6}}, by_topic_id=True)
    errors = {topic[1]: topic[2] for topic in call.result.topics}
    assert errors[topic_id] == [(0, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert errors[ORDERS.topic_id] == [(0, OK)]
    assert driver.fetch("g").offsets() == {("orders", 0): 6}


def test_only_the_zero_topic_id_is_refused_and_creates_nothing(driver):
    """docs/spec/edge-cases.md#edge-68, and step 4: nothing is left."""
    call = driver.commit("g", {ZERO_ID: {0: 5}}, by_topic_id=True)
    assert list(call.partition_errors().values()) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert driver.list_groups() == {}


def test_partition_beyond_a_topic_named_by_id_is_unknown(driver):
    call = driver.commit("g", {ORDERS.topic_id: {12: 5}}, by_topic_id=True)
    assert one(call) is UNKNOWN_TOPIC


@pytest.mark.parametrize("topics", [{}, {"nowhere": {0: 1}}], ids=["no topics", "only unknown"])
def test_commit_of_nothing_checks_neither_group_nor_member(driver, topics):
    """docs/spec/edge-cases.md#edge-60 and docs/spec/offsets.md#commit step 4."""
    call = driver.commit("g", topics, generation_id=7, member_id="bogus")
    assert set(call.partition_errors().values()) == ({UNKNOWN_TOPIC} if topics else set())
    assert driver.list_groups() == {}
    assert (driver.records, driver.events_of(GroupCreated)) == ([], [])


def test_commit_of_nothing_to_a_group_with_members_does_not_look_at_them(driver):
    a_stable_group(driver)
    call = driver.commit("g", {"nowhere": {0: 1}}, generation_id=7, member_id="bogus")
    assert one(call) is UNKNOWN_TOPIC


def test_refused_member_marks_only_what_was_left(driver):
    """docs/spec/offsets.md#commit step 5: those rejected before keep their own error."""
    a_stable_group(driver)
    call = driver.commit("g", {"orders": {0: 1, 99: 1}, "nowhere": {0: 2}})
    assert call.partition_errors() == {
        ("orders", 0): UNKNOWN,
        ("orders", 99): UNKNOWN_TOPIC,
        ("nowhere", 0): UNKNOWN_TOPIC,
    }


def test_metadata_beyond_the_limit_is_refused_alone(driver):
    """docs/spec/edge-cases.md#edge-66."""
    topics = [("orders", "", [(0, 1, -1, "x" * 4_096), (1, 2, -1, "x" * 4_097), (2, 3, -1, "")])]
    call = driver.commit("g", topics)
    assert call.partition_errors() == {
        ("orders", 0): OK,
        ("orders", 1): ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ("orders", 2): OK,
    }
    assert driver.fetch("g").offsets() == {("orders", 0): 1, ("orders", 2): 3}


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ("é" * 4_096, OK),  # two bytes each, one unit
        ("😀" * 2_048, OK),  # two units each
        ("😀" * 2_048 + "x", ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
    ids=["4096 accents", "2048 emoji", "2048 emoji and one"],
)
def test_metadata_is_counted_in_utf16_units(driver, metadata, error):
    """docs/spec/offsets.md#commit step 6."""
    call = driver.commit("g", [("orders", "", [(0, 1, -1, metadata)])])
    assert one(call) is error


class NotWalked(str):
    """A text that may be looked at in C alone: a walk over 8 MiB of them takes 400 ms."""

    __slots__ = ()

    def __iter__(self):
        raise AssertionError("walked over, character by character")


@pytest.mark.parametrize("metadata", ["x" * 4_096, "x" * 32_767, "é" * 4_096, "😀" * 8_000])
def test_metadata_is_never_walked_over(driver, metadata):
    driver.commit("g", [("orders", "", [(0, 1, -1, NotWalked(metadata))])])


def test_nothing_is_written_where_every_partition_has_too_much_metadata(driver):
    a_stable_group(driver)
    since = len(driver.records)
    leader_call = driver.commit("empty", [("orders", "", [(0, 1, -1, "x" * 5_000)])])
    assert one(leader_call) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert driver.records_of(OffsetsCommitted, since) == []


def test_null_metadata_is_stored_as_empty_and_negative_offsets_as_they_are(driver):
    """docs/spec/edge-cases.md#edge-67."""
    assert one(driver.commit("g", [("orders", "", [(0, -7, -1, None)])])) is OK
    ((_, _, [fetched]),) = driver.fetch("g").result.topics
    assert fetched == (0, -7, -1, "", OK)


def test_negative_offset_may_be_the_first_of_a_partition_in_a_group_that_has_others(driver):
    """docs/spec/edge-cases.md#edge-67: below the -1 that stands for "nothing was there"."""
    driver.commit("g", {"orders": {0: 0}})
    assert set(driver.commit("g", {"orders": {0: 0, 1: -7}}).partition_errors().values()) == {OK}
    assert driver.fetch("g").offsets() == {("orders", 0): 0, ("orders", 1): -7}


def test_host_without_topics_accepts_every_topic(make_driver):
    """The image of an embedded coordinator."""
    driver = make_driver(image=TopicImage.any())
    assert one(driver.commit("g", {"anything": {12_345: 1}})) is OK
    assert driver.fetch("g").offsets() == {("anything", 12_345): 1}


def test_empty_group_id_is_an_ordinary_one(driver):
    """docs/spec/edge-cases.md#edge-70 and docs/spec/admission.md#order."""
    assert one(driver.commit("")) is OK
    assert driver.fetch("").offsets() == {("orders", 0): 100}
    assert "" in driver.list_groups()


# --- Who may commit (docs/spec/offsets.md#who-may-commit) ---


@pytest.mark.parametrize("member_id", ["", "anyone"])
def test_absent_group_is_created_by_a_commit_without_generation(driver, member_id):
    """docs/spec/offsets.md#who-may-commit, row "absent"; docs/spec/groups.md#states: a simple group
    without protocol type.
    """
    assert one(driver.commit("g", member_id=member_id)) is OK
    group = driver.list_groups()["g"]
    assert (group.group_state, group.protocol_type, group.group_type) == ("Empty", "", "classic")
    (created,) = driver.events_of(GroupCreated)
    assert created.group_id == "g"


@pytest.mark.parametrize("error", [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION])
def test_absent_group_refuses_a_commit_with_a_generation(driver, error):
    """docs/spec/edge-cases.md#edge-61: which error is the version's; the request carries it."""
    call = driver.commit("g", generation_id=0, member_id="m", absent_group_error=error)
    assert one(call) is error
    assert driver.list_groups() == {}


def emptied(driver):
    """A member that left a group which is Empty now, with its last generation in hand."""
    (member,) = a_stable_group(driver, members=1)
    member.leave()
    assert driver.state() == "Empty"
    return member


def test_empty_group_accepts_who_claims_to_be_nobody(driver):
    """docs/spec/offsets.md#who-may-commit row "Empty": the administrator's reset."""
    emptied(driver)
    assert one(driver.commit("g")) is OK


def test_empty_group_accepts_a_member_id_without_a_generation(driver):
    """docs/spec/edge-cases.md#edge-62."""
    emptied(driver)
    assert one(driver.commit("g", member_id="foo")) is OK


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_empty_group_refuses_every_generation(driver, generation):
    """docs/spec/edge-cases.md#edge-63: UNKNOWN_MEMBER_ID, not ILLEGAL_GENERATION."""
    member = emptied(driver)
    assert one(member.commit(generation_id=generation)) is UNKNOWN


def test_simple_group_accepts_again_and_refuses_a_generation(driver):
    """docs/spec/offsets.md#who-may-commit: Empty, incl. simple."""
    driver.commit("g")
    assert one(driver.commit("g", member_id="x")) is OK
    assert one(driver.commit("g", generation_id=0)) is UNKNOWN
    assert len(driver.events_of(GroupCreated)) == 1


def in_state(driver, state):
    """A group of two in a state, the leader first."""
    if state == "CompletingRebalance":
        return completing(driver, a_member(driver, instance_id="i1"), a_member(driver))
    members = stable(driver, a_member(driver, instance_id="i1"), a_member(driver))
    if state == "PreparingRebalance":
        driver.join("g", version=3)
    return members


STATES = pytest.mark.parametrize("state", ["PreparingRebalance", "Stable", "CompletingRebalance"])


@STATES
def test_group_with_members_refuses_who_claims_to_be_nobody(driver, state):
    """docs/spec/edge-cases.md#edge-65."""
    in_state(driver, state)
    assert one(driver.commit("g")) is UNKNOWN
    assert driver.state() == state


@STATES
def test_group_with_members_checks_the_identity_first(driver, state):
    """docs/spec/offsets.md#who-may-commit: UNKNOWN_MEMBER_ID and FENCED_INSTANCE_ID before the
    generation.
    """
    member = next(m for m in in_state(driver, state) if m.instance_id)
    assert one(driver.commit("g", generation_id=99, member_id="made-up")) is UNKNOWN
    unknown = member.commit(generation_id=99, group_instance_id="never-seen")
    assert one(unknown) is UNKNOWN
    fenced = member.commit(generation_id=99, member_id="older")
    assert one(fenced) is ErrorCode.FENCED_INSTANCE_ID


@STATES
@pytest.mark.parametrize("generation", [0, 2, -1])
def test_group_with_members_refuses_another_generation(driver, state, generation):
    """docs/spec/offsets.md#who-may-commit: then gen must equal the generation; a member without one
    is no exception.
    """
    member = in_state(driver, state)[0]
    assert one(member.commit(generation_id=generation)) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("state", ["PreparingRebalance", "Stable"])
def test_member_commits_with_the_current_generation(driver, state):
    """docs/spec/edge-cases.md#edge-64: PreparingRebalance accepts the old generation."""
    for member in in_state(driver, state):
        assert one(member.commit()) is OK


def test_completing_group_refuses_commits(driver):
    """docs/spec/edge-cases.md#edge-64."""
    for member in in_state(driver, "CompletingRebalance"):
        assert one(member.commit()) is ErrorCode.REBALANCE_IN_PROGRESS


def test_instance_id_alone_is_somebody(driver):
    """docs/spec/offsets.md#who-may-commit: the first column needs all three to be missing."""
    (member,) = stable(driver, a_member(driver, instance_id="i1"))
    assert one(driver.commit("g", group_instance_id="never-seen")) is UNKNOWN
    call = driver.commit("g", group_instance_id=member.instance_id)
    assert one(call) is ErrorCode.FENCED_INSTANCE_ID


def test_refused_commit_changes_and_writes_nothing(driver):
    a_stable_group(driver)
    since = len(driver.records)
    driver.commit("g", generation_id=9, member_id="made-up")
    assert driver.records[since:] == []
    assert driver.fetch("g").offsets() == {}


# --- Sessions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["PreparingRebalance", "Stable"])
def test_commit_keeps_the_member_alive(driver, state):
    """docs/spec/offsets.md#commit step 7 (testGenericGroupOffsetCommitMaintainsSession)."""
    leader, follower = in_state(driver, state)
    for _ in range(4):
        driver.advance(SESSION_MS - 1)
        assert one(leader.commit()) is OK
        follower.heartbeat()
    assert leader.member_id in {m.member_id for m in driver.describe().members}


def test_a_commit_that_makes_a_deadline_the_earliest_says_so(driver):
    """The runtime looks at the deadlines of a shard only after a step that says so."""
    leader, _ = a_stable_group(driver, members=2)
    leader.commit()
    assert driver.shard.step.sets_alarm is False
    session = driver.shard.groups["g"].members[leader.member_id].session
    driver.shard.deadlines.clear(session)
    session.queued_at = None
    leader.commit()
    assert driver.shard.step.sets_alarm is True


def test_commit_that_is_refused_in_part_keeps_the_member_alive(driver):
    (leader,) = a_stable_group(driver, members=1)
    driver.advance(SESSION_MS - 1)
    leader.commit({"orders": {0: 1}, "nowhere": {0: 1}})
    driver.advance(1)
    assert driver.state() == "Stable"


def test_commit_does_not_keep_a_member_alive_while_completing(driver):
    leader, follower = completing(driver, a_member(driver), a_member(driver))
    driver.advance(SESSION_MS - 1)
    leader.commit()
    follower.heartbeat()
    driver.advance(1)
    assert [m.member_id for m in driver.describe().members] == [follower.member_id]


def test_refused_commit_does_not_keep_a_member_alive(driver):
    leader, _ = a_stable_group(driver)
    driver.advance(SESSION_MS - 1)
    leader.commit(generation_id=9)
    driver.advance(1)
    assert driver.state() == "Empty"


def test_commit_of_only_unknown_topics_does_not_keep_a_member_alive(driver):
    """docs/spec/offsets.md#commit step 4: the group is not looked at."""
    leader, _ = a_stable_group(driver)
    driver.advance(SESSION_MS - 1)
    leader.commit({"nowhere": {0: 1}})
    driver.advance(1)
    assert driver.state() == "Empty"


# --- Retention (docs/spec/offsets.md#retention-time) ---


def test_commit_with_retention_carries_its_expiry(driver):
    """docs/spec/offsets.md#retention-time: now + value."""
    driver.commit("g", retention_ms=60_000)
    (record,) = driver.records_of(OffsetsCommitted)
    assert record.expire_time_ms == driver.now.wall_ms + 60_000


def test_expired_offset_is_returned_until_the_next_pass(driver):
    """docs/spec/edge-cases.md#edge-80, as far as docs/spec/offsets.md#retention-time states it."""
    driver.commit("g", retention_ms=1)
    driver.advance(1_000)
    assert driver.fetch("g").offsets() == {("orders", 0): 100}


def test_later_commit_without_retention_clears_it(driver):
    """docs/spec/offsets.md#retention-time."""
    driver.commit("g", retention_ms=1)
    driver.commit("g")
    assert driver.saved()["g"].offsets["orders"][0].expire_time_ms == -1
    driver.advance(2 * driver.limits.retention_check_interval_ms)
    assert driver.fetch("g").offsets() == {("orders", 0): 100}


# --- Events -------------------------------------------------------------------------------------


def test_commit_that_was_refused_is_an_event(driver):
    a_stable_group(driver)
    since = len(driver.events)
    driver.commit("g", generation_id=5, member_id="made-up")
    (event,) = driver.events_of(CommitRejected, since)
    assert (event.group_id, event.member_id, event.generation_id) == ("g", "made-up", 5)
    assert (event.error, event.count) == ("UNKNOWN_MEMBER_ID", 1)
    assert (event.client_id, event.client_host) == CLIENT[:2]


def test_offsets_are_counted(driver):
    driver.commit("g", {"orders": {0: 1, 1: 2}})
    driver.commit("h", {"orders": {0: 1}})
    driver.commit("g", {"orders": {0: 5}})
    assert driver.shard.offset_count() == 3
    assert driver.shard.group_count() == 2


def test_offsets_of_a_group_survive_its_members(driver):
    leader, follower = a_stable_group(driver)
    leader.commit({"orders": {0: 1}})
    heartbeat_through(driver, SESSION_MS, follower)
    follower.joined(follower.join())
    follower.sync(assignment_for([follower]))
    follower.leave()
    assert driver.fetch("g").offsets() == {("orders", 0): 1}
