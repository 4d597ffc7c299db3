"""OffsetDelete and DeleteGroups (docs/spec/offsets.md#delete,
docs/spec/administration.md#delete-groups).
"""

from __future__ import annotations

from typing import Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import DeleteGroup, PartlyDeleted
from groupkeeper.coordinator.core.requests.offsets import OffsetDelete, OffsetDeleteResult
from tests.helpers.wire.handling import (
    CLIENT_HOST,
    CLIENT_ID,
    FakeCoordinator,
    ask,
    asked,
    begin,
    decode,
    make_services,
    versions_of,
)


def partitions(*indexes: int) -> list[dict[str, int]]:
    return [{"partition_index": index} for index in indexes]


def test_offsets_to_delete_are_asked_for_with_who_asks() -> None:
    topics = [
        {"name": "orders", "partitions": partitions(0, 2)},
        {"name": "payments", "partitions": partitions(1)},
    ]
    request = asked("offset_delete", 0, group_id="g", topics=topics)
    assert isinstance(request, OffsetDelete)
    assert request.group_id == "g"
    assert request.topics == (("orders", [0, 2]), ("payments", [1]))
    assert (request.client.client_id, request.client.client_host) == (CLIENT_ID, CLIENT_HOST)


def test_topics_are_asked_for_as_they_come() -> None:
    topics = [
        {"name": "orders", "partitions": partitions(0)},
        {"name": "payments", "partitions": []},
        {"name": "orders", "partitions": partitions(5)},
    ]
    request = asked("offset_delete", 0, group_id="g", topics=topics)
    assert request.topics == (("orders", [0]), ("payments", []), ("orders", [5]))


def test_offset_delete_answers_each_partition() -> None:
    result = OffsetDeleteResult(
        ErrorCode.NONE,
        (
            ("orders", [(0, ErrorCode.NONE), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
            ("payments", [(1, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)]),
        ),
    )
    exchange, channel = begin(make_services(lambda _: result), "offset_delete", 0, group_id="g")
    (frame,) = channel.replies
    reply = decode("offset_delete", 0, frame)
    assert (reply["error_code"], reply["throttle_time"]) == (0, 0)
    assert [
        (t["name"], [(p["partition_index"], p["error_code"]) for p in t["partitions"]])
        for t in reply["topics"]
    ] == [("orders", [(0, 0), (7, 3)]), ("payments", [(1, 86)])]
    assert exchange.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_offset_delete_without_errors_counts_none() -> None:
    result = OffsetDeleteResult(ErrorCode.NONE, (("orders", [(0, ErrorCode.NONE)]),))
    exchange, _ = begin(make_services(lambda _: result), "offset_delete", 0, group_id="g")
    assert exchange.error == ErrorCode.NONE


def test_an_error_of_the_group_stands_before_the_throttle_time() -> None:
    result = OffsetDeleteResult(ErrorCode.NON_EMPTY_GROUP)
    exchange, channel = begin(make_services(lambda _: result), "offset_delete", 0, group_id="g")
    assert channel.replies[0][8:] == b"\x00\x44" + bytes(4) + bytes(4)
    assert exchange.error == ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("version", versions_of("delete_groups"))
def test_delete_groups_of_every_version(version: int) -> None:
    def judge(request: Any) -> ErrorCode:
        assert isinstance(request, DeleteGroup)
        assert request.client.client_id == CLIENT_ID
        return {"busy": ErrorCode.NON_EMPTY_GROUP, "": ErrorCode.GROUP_ID_NOT_FOUND}.get(
            request.group_id, ErrorCode.NONE
        )

    reply = ask("delete_groups", version, judge, groups_names=["a", "busy", "", "b"])
    assert reply["throttle_time"] == 0
    assert [(r["group_id"], r["error_code"]) for r in reply["results"]] == [
        ("a", 0),
        ("busy", 68),
        ("", 69),
        ("b", 0),
    ]


@pytest.mark.parametrize("version", versions_of("delete_groups"))
def test_a_group_that_is_named_twice_is_deleted_and_answered_once(version: int) -> None:
    services = make_services(lambda _: ErrorCode.NONE)
    reply = ask("delete_groups", version, services=services, groups_names=["a", "b", "a"])
    coordinator = services.coordinator
    assert isinstance(coordinator, FakeCoordinator)
    assert [r.group_id for r in coordinator.requests] == ["a", "b"]
    assert [r["group_id"] for r in reply["results"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (ErrorCode.NONE, 0),
        (ErrorCode.NON_EMPTY_GROUP, 68),
        (PartlyDeleted(ErrorCode.NOT_COORDINATOR), 16),
    ],
)
def test_a_large_group_is_deleted_by_one_request(last: Any, code: int) -> None:
    answers = [PartlyDeleted(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 3 + [last]
    services = make_services(lambda _: answers.pop(0))
    reply = ask("delete_groups", 2, services=services, groups_names=["large"])
    assert [(r["group_id"], r["error_code"]) for r in reply["results"]] == [("large", code)]
    assert not answers


def test_many_groups_are_deleted_a_window_at_a_time() -> None:
    services = make_services(lambda _: ErrorCode.NONE)
    names = [f"g{n}" for n in range(150)]
    _, channel = begin(services, "delete_groups", 2, groups_names=names)
    coordinator = services.coordinator
    assert isinstance(coordinator, FakeCoordinator)
    assert len(coordinator.requests) == 64
    while channel.timers:
        channel.run_timers()
    (frame,) = channel.replies
    assert [r["group_id"] for r in decode("delete_groups", 2, frame)["results"]] == names
