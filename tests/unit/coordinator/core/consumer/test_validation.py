"""What a ConsumerGroupHeartbeat must have (docs/spec/consumer-groups.md#validation).

GroupCoordinatorServiceTest.testConsumerHeartbeatRequestValidation.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from groupkeeper.coordinator.core.consumer.validation import heartbeat_error
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.consumer import ConsumerGroupHeartbeat

ASSIGNORS = ("uniform", "range")
STEADY = ConsumerGroupHeartbeat(
    "g", "m", 1, None, None, -1, None, None, None, None, None, "", Client("app", "/10.0.0.1")
)
JOIN = msgspec.structs.replace(
    STEADY, member_epoch=0, rebalance_timeout_ms=0, subscribed_topic_names=(), owned=()
)


def error_of(request: ConsumerGroupHeartbeat, *, version: int = 1, **changes: Any) -> str | None:
    wrong = heartbeat_error(
        msgspec.structs.replace(request, **changes), ASSIGNORS, client_makes_id=version >= 1
    )
    if wrong is None:
        return None
    assert wrong.error is ErrorCode.INVALID_REQUEST
    return wrong.message


@pytest.mark.parametrize(
    ("request_", "changes"),
    [
        (STEADY, {}),
        (JOIN, {}),
        (JOIN, {"subscribed_topic_names": None, "subscribed_topic_regex": ""}),
        (JOIN, {"member_id": "", "version": 0}),
        (JOIN, {"server_assignor": "range"}),
        (STEADY, {"member_epoch": -1}),
        (STEADY, {"member_epoch": -2, "group_instance_id": "i"}),
        (STEADY, {"member_epoch": -2, "group_instance_id": "i", "member_id": "", "version": 0}),
    ],
)
def test_what_is_complete_has_no_error(
    request_: ConsumerGroupHeartbeat, changes: dict[str, Any]
) -> None:
    assert error_of(request_, **changes) is None


@pytest.mark.parametrize("blank", ["", " ", "\t\n "])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("member_id", "MemberId"),
        ("group_id", "GroupId"),
        ("group_instance_id", "InstanceId"),
        ("rack_id", "RackId"),
    ],
)
def test_a_blank_text_is_refused(name: str, told: str, blank: str) -> None:
    for request in (STEADY, JOIN):
        assert error_of(request, **{name: blank}) == f"{told} can't be empty."


@pytest.mark.parametrize("epoch", [1, -1])
def test_version_0_may_lack_a_member_id_only_in_a_join(epoch: int) -> None:
    told = error_of(STEADY, version=0, member_id="", member_epoch=epoch)
    assert told == "MemberId can't be empty."


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"owned": (("id", (0,)),)}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining.",
        ),
    ],
)
def test_a_join_names_all(changes: dict[str, Any], told: str) -> None:
    assert error_of(JOIN, **changes) == told


@pytest.mark.parametrize("epoch", [-3, -(2**31)])
def test_no_other_epoch_is_below_0(epoch: int) -> None:
    assert error_of(STEADY, member_epoch=epoch) == "MemberEpoch is invalid."


def test_only_a_static_member_leaves_for_a_short_time() -> None:
    assert error_of(STEADY, member_epoch=-2) == "InstanceId can't be null."


@pytest.mark.parametrize("assignor", ["sticky", "", "Range"])
def test_an_assignor_that_is_not_configured_is_refused(assignor: str) -> None:
    wrong = heartbeat_error(
        msgspec.structs.replace(STEADY, server_assignor=assignor), ASSIGNORS, client_makes_id=True
    )
    assert wrong is not None
    assert wrong.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert wrong.message == (
        f"ServerAssignor {assignor} is not supported. Supported assignors: uniform, range."
    )


def test_the_first_error_in_kafkas_order_is_told() -> None:
    wrong = {
        "member_id": "",
        "group_id": "",
        "group_instance_id": "",
        "rack_id": "",
        "rebalance_timeout_ms": -1,
        "owned": None,
        "subscribed_topic_names": None,
        "server_assignor": "sticky",
    }
    right = {
        "member_id": "m",
        "group_id": "g",
        "group_instance_id": "i",
        "rack_id": "r",
        "rebalance_timeout_ms": 0,
        "owned": (),
        "subscribed_topic_names": (),
    }
    told = []
    for name, value in right.items():
        told.append((error_of(JOIN, **wrong) or "").split()[0])
        wrong[name] = value
    assert told == [
        *("MemberId", "GroupId", "InstanceId", "RackId"),
        *("RebalanceTimeoutMs", "TopicPartitions", "Either"),
    ]
