"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, every version, against kio's classes
(docs/spec/groups.md#versions).
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.membership import (
    Heartbeat,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    JoinProtocol,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncGroupResult,
)
from groupkeeper.coordinator.handlers.sync_group import REFUSED_AFTER_S
from tests.helpers.wire.handling import (
    CLIENT_HOST,
    CLIENT_ID,
    NEW_UUID,
    ask,
    asked,
    begin,
    decode,
    make_services,
    versions_of,
)

CLIENT = Client(CLIENT_ID, CLIENT_HOST)

JOIN = {
    "group_id": "g",
    "session_timeout": 10_000,
    "rebalance_timeout": 60_000,
    "member_id": "m-1",
    "group_instance_id": "i-1",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"\x01"}, {"name": "sticky", "metadata": b""}],
    "reason": "because",
}


@pytest.mark.parametrize("version", versions_of("join_group"))
def test_join_of_every_version_becomes_one_request(version: int) -> None:
    request = asked("join_group", version, **JOIN)
    assert request == JoinGroup(
        group_id="g",
        member_id="m-1",
        group_instance_id="i-1" if version >= 5 else None,
        protocol_type="consumer",
        protocols=(JoinProtocol("range", b"\x01"), JoinProtocol("sticky", b"")),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000 if version >= 1 else 10_000,
        new_member_id="",
        requires_known_member_id=version >= 4,
        supports_skip_assignment=version >= 9,
        client=CLIENT,
        reason="because" if version >= 8 else None,
    )


@pytest.mark.parametrize("version", versions_of("join_group"))
def test_a_join_without_a_member_id_has_a_new_one(version: int) -> None:
    request = asked("join_group", version, **(JOIN | {"member_id": ""}))
    owner = "i-1" if version >= 5 else CLIENT_ID
    assert (request.member_id, request.new_member_id) == ("", f"{owner}-{NEW_UUID}")


def test_a_null_client_id_counts_as_empty_in_the_member_id() -> None:
    services = make_services()
    begin(services, "join_group", 4, client_id=None, **(JOIN | {"member_id": ""}))  # type: ignore[arg-type]
    (request,) = services.coordinator.requests  # type: ignore[attr-defined]
    assert request.new_member_id == f"-{NEW_UUID}"
    assert request.client.client_id == ""


@pytest.mark.parametrize("version", versions_of("join_group"))
def test_join_reply_of_every_version(version: int) -> None:
    members = (JoinedMember("m-1", "i-1", b"\x01"), JoinedMember("m-2", None, b""))
    result = JoinGroupResult(
        ErrorCode.NONE, "m-1", 5, "consumer", "range", "m-1", skip_assignment=True, members=members
    )
    reply = ask("join_group", version, lambda _: result, **JOIN)
    assert reply["error_code"] == 0
    assert (reply["generation_id"], reply["leader"], reply["member_id"]) == (5, "m-1", "m-1")
    assert reply["protocol_name"] == "range"
    assert reply.get("protocol_type") == ("consumer" if version >= 7 else None)
    assert reply.get("skip_assignment", True) is True
    assert [(m["member_id"], m["metadata"]) for m in reply["members"]] == [
        ("m-1", b"\x01"),
        ("m-2", b""),
    ]
    if version >= 5:
        assert [m["group_instance_id"] for m in reply["members"]] == ["i-1", None]


@pytest.mark.parametrize("version", versions_of("join_group"))
def test_join_error_has_a_null_protocol_name_from_v7_and_an_empty_one_before(version: int) -> None:
    result = JoinGroupResult(ErrorCode.UNKNOWN_MEMBER_ID, "m-1")
    reply = ask("join_group", version, lambda _: result, **JOIN)
    assert reply["error_code"] == 25
    assert reply["protocol_name"] == (None if version >= 7 else "")
    assert reply.get("protocol_type") is None
    assert (reply["generation_id"], reply["leader"], reply["members"]) == (-1, "", [])


def test_an_empty_protocol_name_is_null_from_v7() -> None:
    result = JoinGroupResult(ErrorCode.NONE, "m-1", 5, "consumer", "", "m-1")
    assert ask("join_group", 7, lambda _: result, **JOIN)["protocol_name"] is None
    assert ask("join_group", 6, lambda _: result, **JOIN)["protocol_name"] == ""


SYNC = {
    "group_id": "g",
    "generation_id": 3,
    "member_id": "m-1",
    "group_instance_id": "i-1",
    "protocol_type": "consumer",
    "protocol_name": "range",
    "assignments": [{"member_id": "m-1", "assignment": b"\x07"}],
}


@pytest.mark.parametrize("version", versions_of("sync_group"))
def test_sync_of_every_version_becomes_one_request(version: int) -> None:
    assert asked("sync_group", version, **SYNC) == SyncGroup(
        group_id="g",
        generation_id=3,
        member_id="m-1",
        group_instance_id="i-1" if version >= 3 else None,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=(("m-1", b"\x07"),),
        client=CLIENT,
    )


@pytest.mark.parametrize("version", versions_of("sync_group"))
def test_sync_reply_of_every_version(version: int) -> None:
    result = SyncGroupResult(ErrorCode.NONE, b"\x07\x08", "consumer", "range")
    reply = ask("sync_group", version, lambda _: result, **SYNC)
    assert (reply["error_code"], reply["assignment"]) == (0, b"\x07\x08")
    assert reply.get("protocol_type") == ("consumer" if version >= 5 else None)
    assert reply.get("protocol_name") == ("range" if version >= 5 else None)


@pytest.mark.parametrize("version", versions_of("sync_group"))
def test_sync_error_has_an_empty_assignment_and_no_names(version: int) -> None:
    result = SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS)
    reply = ask("sync_group", version, lambda _: result, **SYNC)
    assert (reply["error_code"], reply["assignment"]) == (27, b"")
    assert reply.get("protocol_type") is None


@pytest.mark.parametrize(
    "error", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_a_sync_whose_assignments_are_too_large_is_answered_later(error: ErrorCode) -> None:
    """librdkafka repeats join and sync at once after any error of a sync."""
    services = make_services(lambda _: SyncGroupResult(error))
    exchange, channel = begin(services, "sync_group", 5, **SYNC)
    assert (exchange.blocks, exchange.error) == (True, error)
    ((delay_s, _),) = channel.timers
    assert (delay_s, channel.replies) == (REFUSED_AFTER_S, [])
    channel.run_timers()
    (reply,) = channel.replies
    assert decode("sync_group", 5, reply)["error_code"] == error


def test_a_refusal_of_a_sync_is_not_sent_to_a_connection_that_has_closed() -> None:
    services = make_services(lambda _: SyncGroupResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    exchange, channel = begin(services, "sync_group", 5, **SYNC)
    exchange.detach()
    assert (channel.timers, channel.replies) == ([], [])


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_sync_v5_without_type_or_name_is_refused_before_the_coordinator_is_asked(
    missing: str,
) -> None:
    services = make_services()
    reply = ask("sync_group", 5, services=services, **{**SYNC, missing: None})
    assert reply["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert services.coordinator.requests == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", versions_of("heartbeat"))
def test_heartbeat_of_every_version(version: int) -> None:
    values = {
        "group_id": "g",
        "generation_id": 3,
        "member_id": "m-1",
        "group_instance_id": "i-1",
    }
    assert asked("heartbeat", version, **values) == Heartbeat(
        "g", 3, "m-1", "i-1" if version >= 3 else None, CLIENT
    )
    reply = ask("heartbeat", version, lambda _: ErrorCode.REBALANCE_IN_PROGRESS, **values)
    assert reply["error_code"] == 27


LEAVE = {
    "group_id": "g",
    "member_id": "m-1",
    "members": [
        {"member_id": "m-1", "group_instance_id": None, "reason": "done"},
        {"member_id": "", "group_instance_id": "i-2", "reason": None},
    ],
}


@pytest.mark.parametrize("version", versions_of("leave_group"))
def test_leave_of_every_version_becomes_one_request(version: int) -> None:
    members: tuple[LeavingMember, ...] = (LeavingMember("m-1", None),)
    if version >= 3:
        members = (
            LeavingMember("m-1", None, "done" if version >= 5 else None),
            LeavingMember("", "i-2"),
        )
    assert asked("leave_group", version, **LEAVE) == LeaveGroup("g", members, CLIENT)


@pytest.mark.parametrize("version", versions_of("leave_group"))
def test_leave_errors_are_on_top_up_to_v2_and_by_member_after(version: int) -> None:
    left = (
        LeftMember("m-1", None, ErrorCode.UNKNOWN_MEMBER_ID),
        LeftMember("", "i-2", ErrorCode.NONE),
    )
    reply = ask("leave_group", version, lambda _: LeaveGroupResult(ErrorCode.NONE, left), **LEAVE)
    if version < 3:
        assert reply["error_code"] == 25
    else:
        assert reply["error_code"] == 0
        assert [
            (m["member_id"], m["group_instance_id"], m["error_code"]) for m in reply["members"]
        ] == [("m-1", None, 25), ("", "i-2", 0)]


@pytest.mark.parametrize("version", versions_of("leave_group"))
def test_leave_error_of_the_whole_is_on_top_with_no_members(version: int) -> None:
    result = LeaveGroupResult(ErrorCode.NOT_COORDINATOR)
    reply = ask("leave_group", version, lambda _: result, **LEAVE)
    assert reply["error_code"] == 16
    assert reply.get("members", []) == []


def test_one_members_overlong_instance_id_does_not_cost_the_leader_its_reply() -> None:
    odd = "\ufffd" * 32_767
    members = (JoinedMember("m-2", odd, b""),)
    result = JoinGroupResult(ErrorCode.NONE, "m-1", 5, "c", "range", "m-1", members=members)
    for version in (5, 9):
        reply = ask("join_group", version, lambda _: result, **JOIN)
        assert reply["members"][0]["group_instance_id"] == odd[: 32_767 // 3]
