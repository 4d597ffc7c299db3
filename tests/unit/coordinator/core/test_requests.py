"""What each type of request declares, and what follows from it without a shard."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from groupkeeper.coordinator.core.declarations import (
    AnyRequest,
    GroupRead,
    GroupRequest,
    ShardRoute,
)
from groupkeeper.coordinator.core.dispatch import ABSENT_GROUP, FUNCTION_OF, HANDLERS, handles
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from groupkeeper.coordinator.core.requests.membership import JoinGroupResult, SyncGroupResult
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit, OffsetFetch
from groupkeeper.coordinator.core.requests.request import PARKED_RESULTS, Request
from groupkeeper.coordinator.core.requests.topics import ClusterRequest
from groupkeeper.coordinator.core.shard import BEHAVIOUR_OF
from tests.helpers.core.sample_requests import REQUESTS

each_request = pytest.mark.parametrize(
    "request_", REQUESTS.values(), ids=lambda request: type(request).__name__
)


def test_every_request_is_taken_by_a_function_of_the_core_and_declares_all() -> None:
    of_groups = {kind for kind in get_args(Request) if kind.route is not ShardRoute.CLUSTER}
    for group_type in BEHAVIOUR_OF:
        assert set(HANDLERS[group_type]) == of_groups
    assert set(ABSENT_GROUP) == of_groups
    assert set(FUNCTION_OF) | of_groups == set(get_args(Request)) == set(REQUESTS)
    for kind in get_args(Request):
        assert issubclass(kind, AnyRequest)
        if kind.route is ShardRoute.GROUP:
            assert "group_id" in kind.__struct_fields__
        else:
            assert kind.group_id is None, "it would be routed to the shard of a group"
        undeclared = [name for name in AnyRequest.__annotations__ if not hasattr(kind, name)]
        assert undeclared == []


def test_a_request_that_does_not_declare_all_is_not_taken() -> None:
    class ShareGroupHeartbeat(GroupRequest, frozen=True):
        result = ErrorCode
        parks = reads = waits = False
        while_loading = ErrorCode.NONE

    with pytest.raises(TypeError, match="ShareGroupHeartbeat does not declare when_full"):
        handles(ShareGroupHeartbeat)


class _Greeting(GroupRead, frozen=True):
    """A request that groups of each type answer in their own way."""

    result = ErrorCode


def test_each_type_of_group_has_a_function_of_its_own(monkeypatch) -> None:
    for functions in (*HANDLERS.values(), ABSENT_GROUP):
        monkeypatch.setitem(functions, _Greeting, None)  # removed at the end of the test

    @handles(_Greeting, GroupType.CLASSIC)
    def of_classic(*_: object) -> None: ...

    @handles(_Greeting, GroupType.CONSUMER)
    def of_consumer(*_: object) -> None: ...

    assert HANDLERS[GroupType.CLASSIC][_Greeting] is of_classic
    assert HANDLERS[GroupType.CONSUMER][_Greeting] is of_consumer
    assert ABSENT_GROUP[_Greeting] is of_classic


@each_request
def test_the_route_of_a_request_is_that_of_what_it_names(request_: Request) -> None:
    of_group = isinstance(request_, GroupRequest)
    of_cluster = isinstance(request_, ClusterRequest)
    names_a_group = "group_id" in request_.__struct_fields__
    assert (request_.route is ShardRoute.GROUP) is of_group is names_a_group
    assert (request_.route is ShardRoute.CLUSTER) is of_cluster


def test_what_parks_has_its_result_for_itself() -> None:
    """A result is then known to end the wait of one that may have been parked."""
    assert {JoinGroupResult, SyncGroupResult, ConsumerGroupHeartbeatResult} == PARKED_RESULTS
    assert not any(k.result in PARKED_RESULTS for k in get_args(Request) if not k.parks)


# Stated here once more, by hand: a table that is compared with itself agrees with anything.
WHILE_LOADING = {
    "Heartbeat": "NONE",
    "SyncGroup": "REBALANCE_IN_PROGRESS",
    "JoinGroup": "COORDINATOR_LOAD_IN_PROGRESS",
    "LeaveGroup": "COORDINATOR_LOAD_IN_PROGRESS",
    "OffsetCommit": "COORDINATOR_LOAD_IN_PROGRESS",
    "OffsetFetch": "COORDINATOR_LOAD_IN_PROGRESS",
    "ListGroups": "COORDINATOR_LOAD_IN_PROGRESS",
    "DescribeGroup": "COORDINATOR_LOAD_IN_PROGRESS",
    "DeleteGroup": "COORDINATOR_LOAD_IN_PROGRESS",
    "OffsetDelete": "COORDINATOR_LOAD_IN_PROGRESS",
    "ReadGroup": "COORDINATOR_LOAD_IN_PROGRESS",
    "EndSession": "COORDINATOR_LOAD_IN_PROGRESS",
    "ChangeTopics": "NOT_CONTROLLER",
    "AlterGroupConfigs": "NOT_CONTROLLER",
    "ChangeUpstream": "NOT_CONTROLLER",
    "ConsumerGroupHeartbeat": "COORDINATOR_LOAD_IN_PROGRESS",
    "ConsumerGroupDescribe": "COORDINATOR_LOAD_IN_PROGRESS",
    "TxnOffsetCommit": "COORDINATOR_LOAD_IN_PROGRESS",
    "EndTransactions": "COORDINATOR_LOAD_IN_PROGRESS",
    "ConfirmPending": "COORDINATOR_LOAD_IN_PROGRESS",
    "DropPending": "COORDINATOR_LOAD_IN_PROGRESS",
    "MoveJournal": "COORDINATOR_LOAD_IN_PROGRESS",
    "ReadPending": "COORDINATOR_LOAD_IN_PROGRESS",
    "ReadAdoption": "COORDINATOR_LOAD_IN_PROGRESS",
    "MarkAdoption": "COORDINATOR_LOAD_IN_PROGRESS",
}
WHILE_TOO_MUCH_WAITS = {
    "SyncGroup": "COORDINATOR_NOT_AVAILABLE",
    "JoinGroup": "COORDINATOR_NOT_AVAILABLE",
    "LeaveGroup": "COORDINATOR_NOT_AVAILABLE",
    "OffsetCommit": "COORDINATOR_NOT_AVAILABLE",
    "OffsetFetch": "NOT_COORDINATOR",
    "ListGroups": "COORDINATOR_NOT_AVAILABLE",
    "DescribeGroup": "COORDINATOR_NOT_AVAILABLE",
    "DeleteGroup": "COORDINATOR_NOT_AVAILABLE",
    "OffsetDelete": "COORDINATOR_NOT_AVAILABLE",
    "ReadGroup": "COORDINATOR_NOT_AVAILABLE",
    "EndSession": "COORDINATOR_NOT_AVAILABLE",
    "ChangeTopics": "NOT_CONTROLLER",
    "AlterGroupConfigs": "NOT_CONTROLLER",
    "ChangeUpstream": "NOT_CONTROLLER",
    "ConsumerGroupDescribe": "COORDINATOR_NOT_AVAILABLE",
    "TxnOffsetCommit": "COORDINATOR_NOT_AVAILABLE",
    "EndTransactions": "COORDINATOR_NOT_AVAILABLE",
    "ConfirmPending": "COORDINATOR_NOT_AVAILABLE",
    "DropPending": "COORDINATOR_NOT_AVAILABLE",
    "MoveJournal": "COORDINATOR_NOT_AVAILABLE",
    "ReadPending": "COORDINATOR_NOT_AVAILABLE",
    "ReadAdoption": "COORDINATOR_NOT_AVAILABLE",
    "MarkAdoption": "COORDINATOR_NOT_AVAILABLE",
}


def test_what_is_answered_while_a_shard_loads_or_is_full_is_what_the_design_says() -> None:
    """docs/design.md#loading; a heartbeat is never refused for want of room, it writes nothing."""
    kinds = get_args(Request)
    full = {
        type(request).__name__: request.when_full.name
        for request in REQUESTS.values()
        if request.when_full is not None
    }
    assert {kind.__name__: kind.while_loading.name for kind in kinds} == WHILE_LOADING
    assert full == WHILE_TOO_MUCH_WAITS


@pytest.mark.parametrize(("epoch", "is_refused"), [(0, True), (-1, True), (-2, True), (1, False)])
def test_too_much_that_waits_refuses_only_who_joins_or_leaves_a_consumer_group(
    epoch: int, is_refused: bool
) -> None:
    """A refused heartbeat of a member would bring its session closer to its end."""
    heartbeat = msgspec.structs.replace(REQUESTS[ConsumerGroupHeartbeat], member_epoch=epoch)
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_refused else None
    assert heartbeat.when_full is error


@each_request
def test_a_refusal_has_the_result_type_of_its_request(request_: Request) -> None:
    refused = request_.refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert type(refused) is request_.result
    assert type(refused).__name__ in (f"{type(request_).__name__}Result", "ErrorCode")
    assert refused.error is ErrorCode.UNKNOWN_SERVER_ERROR
    of_cluster = request_.route is ShardRoute.CLUSTER
    expected = ErrorCode.NOT_CONTROLLER if of_cluster else ErrorCode.NOT_COORDINATOR
    for lost in (
        refused.replaced(ErrorCode.NOT_COORDINATOR, loads_again=False),
        request_.refused(ErrorCode.NOT_COORDINATOR),
    ):
        assert type(lost) is type(refused)
        assert lost.error is expected
        assert getattr(lost, "group_id", "g") == "g"


@each_request
def test_only_a_commit_is_repeated_without_a_look_for_the_coordinator(request_: Request) -> None:
    """The shard is loaded again by the same process."""
    answer = request_.refused(ErrorCode.NONE)
    lost = answer.replaced(ErrorCode.NOT_COORDINATOR, loads_again=True)
    is_commit = isinstance(request_, OffsetCommit)
    is_loading = lost.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert is_loading is is_commit


def test_a_fetch_that_requires_stable_offsets_is_not_told_14() -> None:
    """Older consumers do not retry it there."""
    asked = OffsetFetch("g", None, False, True)
    assert asked.loading_answer().error is ErrorCode.NOT_COORDINATOR
