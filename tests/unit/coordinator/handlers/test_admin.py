"""ListGroups, DescribeGroups, CreateTopics, CreatePartitions and DeleteTopics
(docs/spec/administration.md#list-groups, #describe-groups).
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from groupkeeper.coordinator.core.cluster.image import TopicInfo
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.requests.admin import (
    DescribedMember,
    DescribeGroup,
    DescribeGroupResult,
    ListedGroup,
    ListGroups,
    ListGroupsResult,
)
from groupkeeper.coordinator.core.requests.topics import (
    ChangeTopics,
    ChangeTopicsResult,
    NewTopic,
    TopicChange,
)
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.packing import printed_topic_id
from tests.helpers.wire.handling import (
    NEW_UUID,
    ORDERS,
    ORDERS_UUID,
    FakeTopics,
    ask,
    asked,
    begin,
    make_services,
    versions_of,
)

NO_OPERATIONS = -(2**31)
NEW_ID = printed_topic_id(NEW_UUID.bytes)

# --- ListGroups


@pytest.mark.parametrize("version", versions_of("list_groups"))
def test_states_are_trimmed_and_types_are_not(version: int) -> None:
    request = asked(
        "list_groups",
        version,
        states_filter=["\0Stable ", "EMPTY", "\u2003dead"],  # String.trim knows no other spaces
        types_filter=[" Classic"],
    )
    assert request == ListGroups(
        frozenset({"stable", "empty", "\u2003dead"}) if version >= 4 else frozenset(),
        frozenset({" classic"}) if version >= 5 else frozenset(),
    )


@pytest.mark.parametrize("version", versions_of("list_groups"))
def test_list_groups_reply_of_every_version(version: int) -> None:
    groups = (
        ListedGroup("a", "consumer", GroupState.STABLE, "classic"),
        ListedGroup("", "", GroupState.EMPTY, "classic"),
        ListedGroup("b", "consumer", GroupState.STABLE, "classic"),
    )
    reply = ask("list_groups", version, lambda _: ListGroupsResult(ErrorCode.NONE, groups))
    assert reply["error_code"] == 0
    shown = [(g["group_id"], g["protocol_type"]) for g in reply["groups"]]
    assert shown == [("a", "consumer"), ("", ""), ("b", "consumer")]
    if version >= 4:
        assert [g["group_state"] for g in reply["groups"]] == ["Stable", "Empty", "Stable"]
    if version >= 5:
        assert {g["group_type"] for g in reply["groups"]} == {"classic"}


@pytest.mark.parametrize("version", versions_of("list_groups"))
def test_list_groups_error_has_no_groups(version: int) -> None:
    result = ListGroupsResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    reply = ask("list_groups", version, lambda _: result)
    assert (reply["error_code"], reply["groups"]) == (14, [])


# --- DescribeGroups


def describe(request: Any) -> DescribeGroupResult:
    assert isinstance(request, DescribeGroup)
    if request.group_id == "gone":
        return DescribeGroupResult(
            ErrorCode.GROUP_ID_NOT_FOUND, "gone", message="Group gone not found."
        )
    if request.group_id == "loading":
        return DescribeGroupResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loading")
    members = (
        DescribedMember("m-1", "i-1", "app", "/10.0.0.7", b"\x01", b"\x02"),
        DescribedMember("m-2", None, "app", "/10.0.0.8", b"", b""),
    )
    return DescribeGroupResult(
        ErrorCode.NONE, request.group_id, GroupState.STABLE, "consumer", "range", members
    )


@pytest.mark.parametrize("version", versions_of("describe_groups"))
def test_describe_reply_of_every_version_in_request_order_duplicates_twice(version: int) -> None:
    reply = ask("describe_groups", version, describe, groups=["b", "a", "b"])
    assert [g["group_id"] for g in reply["groups"]] == ["b", "a", "b"]
    group = reply["groups"][1]
    assert (group["error_code"], group["group_state"]) == (0, "Stable")
    assert (group["protocol_type"], group["protocol_data"]) == ("consumer", "range")
    assert group.get("error_message") is None
    first, second = group["members"]
    assert (first["member_id"], first["client_id"], first["client_host"]) == (
        "m-1",
        "app",
        "/10.0.0.7",
    )
    assert (first["member_metadata"], first["member_assignment"]) == (b"\x01", b"\x02")
    assert (second["member_metadata"], second["member_assignment"]) == (b"", b"")
    if version >= 4:
        assert [m["group_instance_id"] for m in group["members"]] == ["i-1", None]


@pytest.mark.parametrize("version", versions_of("describe_groups"))
@pytest.mark.parametrize("with_operations", [False, True])
def test_an_absent_group_is_dead_and_an_error_only_from_v6(
    version: int, with_operations: bool
) -> None:
    reply = ask(
        "describe_groups",
        version,
        describe,
        groups=["gone", "here", "loading"],
        include_authorized_operations=with_operations,
    )
    gone, here, loading = reply["groups"]
    assert gone["error_code"] == (69 if version >= 6 else 0)
    assert (gone["group_state"], gone["protocol_type"], gone["members"]) == ("Dead", "", [])
    assert (loading["error_code"], loading["group_state"]) == (14, "")
    if version >= 6:
        assert gone["error_message"]
    if version >= 3:
        filled = 3400 if with_operations else NO_OPERATIONS
        assert here["authorized_operations"] == filled
        # An entry with an error is not filled; the Dead one of v5 has none.
        assert gone["authorized_operations"] == (NO_OPERATIONS if version >= 6 else filled)
        assert loading["authorized_operations"] == NO_OPERATIONS


def test_a_description_that_would_be_too_large_ends_the_connection_instead() -> None:
    services = make_services(describe, max_reply_bytes=10_000)
    _, channel = begin(services, "describe_groups", 6, groups=["big"] * 1_000)
    while channel.timers:
        channel.run_timers()
    assert channel.refusals == ["reply_too_large"]
    assert channel.replies == []


# --- CreateTopics


def done(request: Any) -> ChangeTopicsResult:
    assert isinstance(request, ChangeTopics)

    def ok(name: str, topic_id: str, partitions: int) -> TopicChange:
        return TopicChange(name, topic_id, partitions, ErrorCode.NONE, None)

    return ChangeTopicsResult(
        ErrorCode.NONE,
        tuple(
            TopicChange(t.name, "", -1, *t.refusal)
            if t.refusal
            else ok(t.name, t.topic_id, t.partitions)
            for t in request.create
        ),
        tuple(ok(name, "", count) for name, count in request.grow),
        tuple(ok(name or "orders", topic_id, 3) for name, topic_id in request.delete),
    )


def new_topic(name: str, partitions: int = 4, replicas: int = 1, **values: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **values}


@pytest.mark.parametrize("version", versions_of("create_topics"))
def test_create_topics_of_every_version(version: int) -> None:
    services = make_services(done, num_partitions=6)
    topics = [
        new_topic("a", configs=[{"name": "retention.ms", "value": "1"}]),
        new_topic("default", -1, -1),
        new_topic("replicated", 1, 3),
    ]
    reply = ask("create_topics", version, services=services, topics=topics, validate_only=True)
    (request,) = services.coordinator.requests  # type: ignore[attr-defined]
    assert request.create[:2] == (NewTopic("a", 4, NEW_ID), NewTopic("default", 6, NEW_ID))
    assert request.validate_only is True
    shown = reply["topics"]
    assert [(t["name"], t["error_code"]) for t in shown] == [
        ("a", 0),
        ("default", 0),
        ("replicated", ErrorCode.INVALID_REPLICATION_FACTOR),
    ]
    assert shown[2]["error_message"]
    if version >= 5:
        assert [(t["num_partitions"], t["replication_factor"]) for t in shown] == [
            (4, 1),
            (6, 1),
            (-1, -1),
        ]
    if version >= 7:
        assert [t["topic_id"] for t in shown] == [str(NEW_UUID), str(NEW_UUID), None]


@pytest.mark.parametrize(
    ("partitions", "replicas", "assignments", "code"),
    [
        (-1, -1, [(0, [1]), (1, [1])], None),
        (2, -1, [(0, [1]), (1, [1])], ErrorCode.INVALID_REQUEST),
        (-1, 1, [(0, [1])], ErrorCode.INVALID_REQUEST),
        (-1, -1, [(1, [1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, [(0, [1, 2])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (-1, -1, [(0, [9])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_manual_assignment_may_only_name_us(
    partitions: int, replicas: int, assignments: list[Any], code: ErrorCode | None
) -> None:
    wire = [{"partition_index": index, "broker_ids": brokers} for index, brokers in assignments]
    services = make_services(done)
    topic = new_topic("a", partitions, replicas, assignments=wire)
    (shown,) = ask("create_topics", 7, services=services, topics=[topic])["topics"]
    assert shown["error_code"] == (code or 0)
    if code is None:
        assert shown["num_partitions"] == 2


@pytest.mark.parametrize(
    "values",
    [
        (("retention.mss", "1"),),
        (("retention.mss", None),),
        (("retention.mss", "1"), ("retention.mss", None)),
        (("retention.ms", "1"), ("retention.mss", "x")),
    ],
)
def test_a_config_that_kafka_does_not_take_is_refused(values: Any) -> None:
    configs = [{"name": name, "value": value} for name, value in values]
    topic = new_topic("a", replicas=3, configs=configs)
    (shown,) = ask("create_topics", 7, done, topics=[topic])["topics"]
    assert shown["error_code"] == ErrorCode.INVALID_CONFIG
    assert "retention.mss" in shown["error_message"]


def test_of_a_config_that_comes_twice_the_last_value_counts() -> None:
    configs = [{"name": "retention.ms", "value": value} for value in ("x", "1")]
    reply = ask("create_topics", 7, done, topics=[new_topic("a", configs=configs)])
    assert [t["error_code"] for t in reply["topics"]] == [0]


@pytest.mark.parametrize(("replicas", "code"), [(3, 0), (0, 38), (-2, 38)])
def test_a_number_of_partitions_is_judged_before_replicas_find_no_broker(
    replicas: int, code: int
) -> None:
    """The shard judges partitions: of 0 of them and three replicas it is left to say what is
    wrong."""
    (shown,) = ask("create_topics", 7, done, topics=[new_topic("a", 0, replicas)])["topics"]
    assert shown["error_code"] == code


@pytest.mark.parametrize("timeout_ms", [0, -1])
@pytest.mark.parametrize(
    ("api", "version", "entries"),
    [
        ("create_topics", 7, [new_topic(name) for name in ("a", "b", "a", "c")]),
        (
            "create_partitions",
            3,
            [{"name": name, "count": 9, "assignments": []} for name in ("a", "b", "a", "c")],
        ),
        (
            "delete_topics",
            6,
            [{"name": name, "topic_id": None} for name in ("a", "b", "a", "c")],
        ),
    ],
)
def test_a_change_that_is_given_no_time_is_not_begun(
    api: str, version: int, entries: list[Any], timeout_ms: int
) -> None:
    services = make_services(done)
    reply = ask(api, version, services=services, topics=entries, timeout=timeout_ms)
    (shown,) = (value for value in reply.values() if isinstance(value, list))
    told = [(t["name"], t["error_code"], t["error_message"]) for t in shown]
    assert told == [(name, ErrorCode.REQUEST_TIMED_OUT, None) for name in ("a", "b", "a", "c")]
    assert services.coordinator.requests == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("names", [["a", "a"], ["__cluster_metadata"]])
def test_what_no_time_is_needed_for_is_judged_without_any(names: list[str]) -> None:
    services = make_services(done)
    topics = [new_topic(name) for name in names]
    ask("create_topics", 7, services=services, topics=topics, timeout=0)
    (request,) = services.coordinator.requests  # type: ignore[attr-defined]
    assert [topic.name for topic in request.create] == names


@pytest.mark.parametrize(
    ("topics", "fit"),
    [
        ([new_topic("a", 9_999)], True),
        ([new_topic("a", 10_000)], False),
        ([new_topic("a", 9_999, configs=[{"name": "retention.ms", "value": "1"}])], False),
        ([new_topic("a", 5_000), new_topic("b", 4_998)], True),
        ([new_topic("a", 5_000), new_topic("b", 4_999)], False),
        ([new_topic("a", 9_998), new_topic("default", -1)], False),
        ([new_topic("a", 9_999), new_topic("none", -5)], True),
        ([new_topic("a", 5_000), new_topic("replicated", 5_000, 3)], True),
        ([new_topic("a", 5_000), new_topic("replicated", 5_001, 3)], False),
        ([new_topic("orders", 10_000)], True),
        ([new_topic("orders", 10_001)], False),
        ([new_topic("a", 9_000), new_topic("a", 9_000)], True),
    ],
)
def test_one_request_makes_so_many_partitions_as_kafka_writes_at_once(
    topics: list[dict[str, Any]], fit: bool
) -> None:
    """With a record for each topic and for its configs; what exists, or comes twice, makes none."""
    services = make_services(done)
    reply = ask("create_topics", 7, services=services, topics=topics)
    assert len(services.coordinator.requests) == fit  # type: ignore[attr-defined]
    if not fit:
        told = [(t["name"], t["error_code"], bool(t["error_message"])) for t in reply["topics"]]
        assert told == [(t["name"], ErrorCode.POLICY_VIOLATION, True) for t in topics]


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 3},
        {"configs": [{"name": "no.such", "value": "1"}]},
        {"assignments": [{"partition_index": 0, "broker_ids": [1]}]},
    ],
)
def test_that_a_topic_exists_comes_before_what_else_is_wrong(wrong: dict[str, Any]) -> None:
    def exists(request: Any) -> ChangeTopicsResult:
        error = ErrorCode.TOPIC_ALREADY_EXISTS
        return ChangeTopicsResult(
            ErrorCode.NONE,
            tuple(TopicChange(t.name, "", -1, error, "text") for t in request.create),
        )

    (shown,) = ask("create_topics", 7, exists, topics=[new_topic("orders", **wrong)])["topics"]
    assert shown["error_code"] == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_name_that_comes_twice_is_answered_once() -> None:
    def refuse(request: Any) -> ChangeTopicsResult:
        return ChangeTopicsResult(
            ErrorCode.NONE,
            tuple(
                TopicChange(t.name, "", -1, ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                for t in request.create
            ),
        )

    reply = ask("create_topics", 5, refuse, topics=[new_topic("a"), new_topic("a")])
    assert [(t["name"], t["error_code"]) for t in reply["topics"]] == [("a", 42)]


@pytest.mark.parametrize(
    ("api", "version", "values"),
    [
        ("create_topics", 7, {"topics": [new_topic("a")]}),
        ("create_partitions", 3, {"topics": [{"name": "a", "count": 5, "assignments": None}]}),
        ("delete_topics", 5, {"topic_names": ["a"]}),
    ],
)
def test_an_error_of_the_whole_goes_to_every_topic(
    api: str, version: int, values: dict[str, Any]
) -> None:
    reply = ask(api, version, lambda _: ChangeTopicsResult(ErrorCode.NOT_CONTROLLER), **values)
    (topic,) = reply.get("topics") or reply.get("results") or reply.get("responses")  # type: ignore[misc]
    assert (topic["name"], topic["error_code"]) == ("a", 41)


# --- CreatePartitions


@pytest.mark.parametrize("version", versions_of("create_partitions"))
def test_create_partitions_of_every_version(version: int) -> None:
    services = make_services(done)
    topics = [
        {"name": "orders", "count": 5, "assignments": [{"broker_ids": [1]}] * 2},
        {"name": "other", "count": 9, "assignments": None},
        {"name": "twice", "count": 1, "assignments": None},
        {"name": "twice", "count": 2, "assignments": None},
    ]
    reply = ask("create_partitions", version, services=services, topics=topics, validate_only=False)
    (request,) = services.coordinator.requests  # type: ignore[attr-defined]
    assert request.grow == (("orders", 5), ("other", 9))
    assert [(t["name"], t["error_code"]) for t in reply["results"]] == [
        ("orders", 0),
        ("other", 0),
        ("twice", 42),
    ]


@pytest.mark.parametrize("brokers", [[[1]], [[1], [2]], [[1], [1], [1]]])
def test_an_assignment_of_new_partitions_must_fit(brokers: list[list[int]]) -> None:
    topic = {"name": "orders", "count": 5, "assignments": [{"broker_ids": b} for b in brokers]}
    (shown,) = ask("create_partitions", 3, done, topics=[topic])["results"]
    assert shown["error_code"] == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_an_assignment_that_does_not_fit_is_told_before_there_are_too_many() -> None:
    topic = {"name": "orders", "count": 20_000, "assignments": [{"broker_ids": [7]}]}
    (shown,) = ask("create_partitions", 3, done, topics=[topic])["results"]
    assert shown["error_code"] == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(("count", "code"), [(10_003, 0), (10_004, ErrorCode.POLICY_VIOLATION)])
def test_a_topic_grows_by_so_many_partitions_at_once_as_a_new_one_may_have(
    count: int, code: int
) -> None:
    topic = {"name": "orders", "count": count, "assignments": None}
    (shown,) = ask("create_partitions", 3, done, topics=[topic])["results"]
    assert (shown["error_code"], bool(shown["error_message"])) == (code, code != 0)


def test_all_topics_of_a_request_grow_by_so_many_partitions_together() -> None:
    other = TopicInfo("other", str(NEW_UUID), 1)
    services = make_services(done, topics=FakeTopics(ORDERS, other))
    topics = [
        {"name": name, "count": count, "assignments": None}
        for name, count in (("absent", 20_000), ("orders", 5_003), ("other", 5_002))
    ]
    shown = ask("create_partitions", 3, services=services, topics=topics)["results"]
    assert [t["error_code"] for t in shown] == [0, 0, ErrorCode.POLICY_VIOLATION]
    topics[2]["count"] = 5_001
    shown = ask("create_partitions", 3, services=services, topics=topics)["results"]
    assert [t["error_code"] for t in shown] == [0, 0, 0]


@pytest.mark.parametrize(("name", "count"), [("absent", 5), ("orders", 3), ("orders", 2)])
def test_assignments_for_what_cannot_grow_are_left_to_the_shard_to_refuse(
    name: str, count: int
) -> None:
    """It says what is wrong: there is no such topic, or it is as large already."""
    services = make_services(done)
    topic = {"name": name, "count": count, "assignments": [{"broker_ids": [1]}]}
    ask("create_partitions", 3, services=services, topics=[topic])
    (request,) = services.coordinator.requests  # type: ignore[attr-defined]
    assert request.grow == ((name, count),)


# --- DeleteTopics


@pytest.mark.parametrize("version", [v for v in versions_of("delete_topics") if v < 6])
def test_delete_topics_by_name(version: int) -> None:
    def answer(request: Any) -> ChangeTopicsResult:
        assert request.delete == (("a", ""), ("b", ""), ("b", ""))
        twice = TopicChange("b", "", -1, ErrorCode.INVALID_REQUEST, "Duplicate topic.")
        gone = TopicChange("a", NEW_ID, 1, ErrorCode.NONE, None)
        return ChangeTopicsResult(ErrorCode.NONE, deleted=(gone, twice, twice))

    reply = ask("delete_topics", version, answer, topic_names=["a", "b", "b"])
    assert [(t["name"], t["error_code"]) for t in reply["responses"]] == [("a", 0), ("b", 42)]


def test_delete_topics_by_name_or_id() -> None:
    def answer(request: Any) -> ChangeTopicsResult:
        assert request.delete == (("a", ""), (None, ORDERS.topic_id), (None, NEW_ID))
        return ChangeTopicsResult(
            ErrorCode.NONE,
            deleted=(
                TopicChange("a", NEW_ID, 1, ErrorCode.NONE, None),
                TopicChange("orders", ORDERS.topic_id, 3, ErrorCode.NONE, None),
                TopicChange(None, NEW_ID, -1, ErrorCode.UNKNOWN_TOPIC_ID, None),
            ),
        )

    topics = [
        {"name": "a", "topic_id": None},
        {"name": None, "topic_id": ORDERS_UUID},
        {"name": None, "topic_id": NEW_UUID},
        {"name": "both", "topic_id": uuid.UUID(int=3)},
        *[{"name": None, "topic_id": None}] * 2,
    ]
    reply = ask("delete_topics", 6, answer, topics=topics)
    assert [(t["name"], t["topic_id"], t["error_code"]) for t in reply["responses"]] == [
        ("a", str(NEW_UUID), 0),
        ("orders", str(ORDERS_UUID), 0),
        (None, str(NEW_UUID), ErrorCode.UNKNOWN_TOPIC_ID),
        ("both", str(uuid.UUID(int=3)), ErrorCode.INVALID_REQUEST),
        *[(None, None, ErrorCode.INVALID_REQUEST)] * 2,
    ]


def test_a_topic_without_a_name_is_answered_with_that_name() -> None:
    def answer(request: Any) -> ChangeTopicsResult:
        ((name, topic_id),) = request.delete
        unknown = TopicChange(name, topic_id, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no")
        return ChangeTopicsResult(ErrorCode.NONE, deleted=(unknown,))

    reply = ask("delete_topics", 6, answer, topics=[{"name": "", "topic_id": None}])
    assert [(t["name"], t["error_code"]) for t in reply["responses"]] == [("", 3)]


@pytest.mark.parametrize(
    ("api", "version", "field", "weight"),
    [
        ("create_topics", 7, "topics", 5),
        ("create_partitions", 3, "topics", 2),
        ("delete_topics", 6, "topics", 2),
        ("leave_group", 5, "members", 2),
        ("metadata", 12, "topics", 2),
        ("offset_delete", 0, "topics", 2),
        ("describe_groups", 6, "groups", 1),
    ],
)
def test_what_costs_the_loop_more_counts_as_several_elements(
    api: str, version: int, field: str, weight: int
) -> None:
    services = make_services(max_request_elements=100)
    elements: list[Any] = [{"name": "a"}] * (100 // weight)
    if api == "describe_groups":
        elements = ["a"] * 100
    elif api == "leave_group":
        elements = [{"member_id": "m"}] * 50
    elif api in ("delete_topics", "metadata"):
        elements = [{"name": "a", "topic_id": None}] * 50
    elif api == "offset_delete":
        elements = [{"name": "a", "partitions": []}] * 50
    begin(services, api, version, **{field: elements})
    with pytest.raises(ProtocolError, match="too_many_elements"):
        begin(services, api, version, **{field: [*elements, elements[0]]})
