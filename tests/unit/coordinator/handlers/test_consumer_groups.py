"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, every version, against kio's classes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeResult,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribedConsumerMember,
)
from groupkeeper.coordinator.handlers.brokers import GROUP_OPERATIONS, NO_OPERATIONS
from groupkeeper.protocol.packing import printed_topic_id
from tests.helpers.wire.handling import (
    CLIENT_HOST,
    CLIENT_ID,
    NEW_UUID,
    ORDERS,
    ORDERS_UUID,
    ask,
    asked,
    begin,
    decode,
    make_services,
    versions_of,
)

CLIENT = Client(CLIENT_ID, CLIENT_HOST)
HEARTBEAT = "consumer_group_heartbeat"
DESCRIBE = "consumer_group_describe"
both_heartbeats = pytest.mark.parametrize("version", versions_of(HEARTBEAT))
both_descriptions = pytest.mark.parametrize("version", versions_of(DESCRIBE))

UNCHANGED: dict[str, Any] = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 3,
    "rebalance_timeout": -1,
    "subscribed_topic_names": None,
    "topic_partitions": None,
}
JOIN: dict[str, Any] = UNCHANGED | {
    "member_epoch": 0,
    "rebalance_timeout": 60_000,
    "subscribed_topic_names": ["orders", "bills"],
    "topic_partitions": [],
}


@both_heartbeats
def test_a_join_of_either_version_becomes_one_request(version: int) -> None:
    more = {"subscribed_topic_regex": "ord.*"} if version else {}
    values = JOIN | more | {"instance_id": "i", "rack_id": "r", "server_assignor": "range"}
    request = asked(HEARTBEAT, version, **values)
    pattern = "ord.*" if version else None
    assert request == ConsumerGroupHeartbeat(
        group_id="g",
        member_id="m",
        member_epoch=0,
        group_instance_id="i",
        rack_id="r",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders", "bills"),
        subscribed_topic_regex=pattern,
        pattern_error=request.pattern_error,
        server_assignor="range",
        owned=(),
        new_member_id="",
        client=CLIENT,
    )
    assert (request.pattern_error is None) is (pattern is None)


@both_heartbeats
@pytest.mark.parametrize("instance_id", [None, "i"])
def test_a_heartbeat_without_a_change_lets_later_requests_begin(
    version: int, instance_id: str | None
) -> None:
    services = make_services()
    exchange, _ = begin(services, HEARTBEAT, version, **UNCHANGED, instance_id=instance_id)
    (request,) = services.coordinator.requests  # type: ignore[attr-defined]
    assert request == ConsumerGroupHeartbeat(
        "g", "m", 3, instance_id, None, -1, None, None, None, None, None, "", CLIENT
    )
    assert exchange.blocks is False


@both_heartbeats
@pytest.mark.parametrize(
    "change",
    [
        {"member_epoch": -1},
        {"rack_id": "r"},
        {"rebalance_timeout": 1},
        {"subscribed_topic_names": []},
        {"server_assignor": "range"},
        {"topic_partitions": [{"topic_id": ORDERS_UUID, "partitions": [0, 2]}]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_heartbeat_with_a_change_is_read_as_a_whole(version: int, change: dict[str, Any]) -> None:
    services = make_services()
    exchange, _ = begin(services, HEARTBEAT, version, **(UNCHANGED | change))
    (request,) = services.coordinator.requests  # type: ignore[attr-defined]
    assert exchange.blocks is True
    assert request.member_epoch == change.get("member_epoch", 3)
    assert request.rack_id == change.get("rack_id")
    assert request.rebalance_timeout_ms == change.get("rebalance_timeout", -1)
    names = change.get("subscribed_topic_names")
    assert request.subscribed_topic_names == (None if names is None else tuple(names))
    assert request.server_assignor == change.get("server_assignor")
    owned = ((ORDERS.topic_id, (0, 2)),) if "topic_partitions" in change else None
    assert request.owned == owned


def test_a_member_without_an_id_gets_one_in_version_0() -> None:
    request = asked(HEARTBEAT, 0, **(JOIN | {"member_id": ""}))
    assert request.member_id == ""
    assert request.new_member_id == printed_topic_id(NEW_UUID.bytes)


ASSIGNED = ((ORDERS.topic_id, (0, 2)),)


@both_heartbeats
@pytest.mark.parametrize(
    ("result", "assignment"),
    [
        (ConsumerGroupHeartbeatResult(ErrorCode.NONE, None, "m", 3, 5_000), None),
        (
            ConsumerGroupHeartbeatResult(ErrorCode.NONE, None, "m", 3, 5_000, ()),
            {"topic_partitions": []},
        ),
        (
            ConsumerGroupHeartbeatResult(ErrorCode.NONE, None, "m", 3, 5_000, ASSIGNED),
            {"topic_partitions": [{"topic_id": str(ORDERS_UUID), "partitions": [0, 2]}]},
        ),
        (ConsumerGroupHeartbeatResult(ErrorCode.FENCED_MEMBER_EPOCH, "old"), None),
        (ConsumerGroupHeartbeatResult(ErrorCode.GROUP_AUTHORIZATION_FAILED), None),
    ],
    ids=["as before", "empty", "new", "error", "denied"],
)
def test_each_answer_to_a_heartbeat(
    version: int, result: ConsumerGroupHeartbeatResult, assignment: Any
) -> None:
    services = make_services(lambda _: result)
    exchange, channel = begin(services, HEARTBEAT, version, **UNCHANGED)
    assert decode(HEARTBEAT, version, channel.replies[0]) == {
        "throttle_time": 0,
        "error_code": result.error,
        "error_message": result.message,
        "member_id": result.member_id,
        "member_epoch": result.member_epoch,
        "heartbeat_interval": result.heartbeat_interval_ms,
        "assignment": assignment,
    }
    assert exchange.error == result.error


@both_heartbeats
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST, "GroupId can't be empty."),
        (
            {"server_assignor": "sticky"},
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
        ),
    ],
)
def test_a_request_that_is_wrong_by_itself_reaches_no_group(
    version: int, change: dict[str, Any], error: ErrorCode, message: str
) -> None:
    services = make_services(lambda _: pytest.fail("the coordinator was asked"))
    reply = ask(HEARTBEAT, version, services=services, **(UNCHANGED | change))
    assert (reply["error_code"], reply["error_message"]) == (error, message)
    assert (reply["member_id"], reply["member_epoch"], reply["assignment"]) == (None, 0, None)


@both_heartbeats
def test_heartbeats_are_unsupported_without_the_consumer_protocol(version: int) -> None:
    answered = lambda _: pytest.fail("the coordinator was asked")  # noqa: E731
    services = make_services(answered, serves_consumer_groups=False)
    reply = ask(HEARTBEAT, version, services=services, **(JOIN | {"group_id": ""}))
    assert (reply["error_code"], reply["error_message"]) == (ErrorCode.UNSUPPORTED_VERSION, None)


# --- ConsumerGroupDescribe ---

MEMBER = DescribedConsumerMember(
    member_id="m",
    group_instance_id="i",
    rack_id=None,
    member_epoch=-2,
    client_id="app",
    client_host="/10.0.0.1",
    subscribed_topic_names=("orders",),
    subscribed_topic_regex="",
    assignment=((ORDERS.topic_id, "orders", (0, 1)),),
    target_assignment=(),
    is_classic=True,
)
DESCRIBED = ConsumerGroupDescribeResult(
    ErrorCode.NONE, "g", None, "Reconciling", 5, 4, "uniform", (MEMBER,)
)


@both_descriptions
@pytest.mark.parametrize("with_operations", [False, True])
def test_a_description_has_every_field(version: int, with_operations: bool) -> None:
    services = make_services(lambda _: DESCRIBED)
    reply = ask(
        DESCRIBE,
        version,
        services=services,
        group_ids=["g"],
        include_authorized_operations=with_operations,
    )
    (group,) = reply["groups"]
    (member,) = group.pop("members")
    assert group == {
        "error_code": 0,
        "error_message": None,
        "group_id": "g",
        "group_state": "Reconciling",
        "group_epoch": 5,
        "assignment_epoch": 4,
        "assignor_name": "uniform",
        "authorized_operations": GROUP_OPERATIONS if with_operations else NO_OPERATIONS,
    }
    assigned = {"topic_id": str(ORDERS_UUID), "topic_name": "orders", "partitions": [0, 1]}
    assert member == {
        "member_id": "m",
        "instance_id": "i",
        "rack_id": None,
        "member_epoch": -2,
        "client_id": "app",
        "client_host": "/10.0.0.1",
        "subscribed_topic_names": ["orders"],
        "subscribed_topic_regex": "",
        "assignment": {"topic_partitions": [assigned]},
        "target_assignment": {"topic_partitions": []},
        **({"member_type": 0} if version else {}),
    }


@both_descriptions
def test_groups_are_described_in_the_order_of_the_request_and_twice_if_asked(version: int) -> None:
    services = make_services(
        lambda request: ConsumerGroupDescribeResult(
            ErrorCode.GROUP_ID_NOT_FOUND, request.group_id, f"Group {request.group_id} not found."
        )
    )
    exchange, channel = begin(
        services,
        DESCRIBE,
        version,
        group_ids=["b", "a", "b"],
        include_authorized_operations=True,
    )
    assert services.coordinator.requests == [ConsumerGroupDescribe(each) for each in "bab"]  # type: ignore[attr-defined]
    groups = decode(DESCRIBE, version, channel.replies[0])["groups"]
    told = [(g["group_id"], g["error_message"], g["authorized_operations"]) for g in groups]
    assert told == [(g, f"Group {g} not found.", NO_OPERATIONS) for g in "bab"]
    assert exchange.error == ErrorCode.GROUP_ID_NOT_FOUND


@both_descriptions
def test_descriptions_are_unsupported_without_the_consumer_protocol(version: int) -> None:
    answered = lambda _: pytest.fail("the coordinator was asked")  # noqa: E731
    services = make_services(answered, serves_consumer_groups=False)
    exchange, channel = begin(services, DESCRIBE, version, group_ids=["a", "b"])
    groups = decode(DESCRIBE, version, channel.replies[0])["groups"]
    assert [(g["group_id"], g["error_code"]) for g in groups] == [("a", 35), ("b", 35)]
    assert {g["error_message"] for g in groups} == {None}
    assert exchange.error == ErrorCode.UNSUPPORTED_VERSION


@both_descriptions
def test_a_group_with_many_names_is_described_in_slices(version: int) -> None:
    names = tuple(f"topic-{n:03}" for n in range(900))
    (member,) = DESCRIBED.members
    few, many = (
        msgspec.structs.replace(
            DESCRIBED,
            members=tuple(
                member._replace(member_id=f"m-{n}", subscribed_topic_names=names)
                for n in range(count)
            ),
        )
        for count in (2, 10)
    )
    answers = {"few": few, "many": many}
    services = make_services(lambda request: answers[request.group_id])
    values = {"group_ids": ["many", "few", "many"], "include_authorized_operations": True}
    _, channel = begin(services, DESCRIBE, version, **values)
    turns = 0
    while channel.timers:
        assert channel.replies == []
        channel.run_timers()
        turns += 1
    assert turns >= 3, "each slice has 2,000 elements"
    (frame,) = channel.replies
    groups = decode(DESCRIBE, version, frame)["groups"]
    assert [len(group["members"]) for group in groups] == [10, 2, 10]
    for group in groups:
        assert group["authorized_operations"] == GROUP_OPERATIONS
        ids = [described["member_id"] for described in group["members"]]
        assert ids == [f"m-{n}" for n in range(len(ids))]
        assert all(each["subscribed_topic_names"] == [*names] for each in group["members"])


def test_a_description_larger_than_a_reply_may_be_is_refused_before_it_is_made() -> None:
    (member,) = DESCRIBED.members
    names = tuple(f"topic-{n:03}" for n in range(900))
    members = tuple(member._replace(subscribed_topic_names=names) for _ in range(1_000))
    services = make_services(
        lambda _: msgspec.structs.replace(DESCRIBED, members=members), max_reply_bytes=50_000
    )
    values = {"group_ids": ["g"], "include_authorized_operations": False}
    _, channel = begin(services, DESCRIBE, 1, **values)
    turns = 0
    while channel.timers:
        channel.run_timers()
        turns += 1
    assert channel.refusals == ["reply_too_large"]
    assert channel.replies == []
    assert turns < 10
