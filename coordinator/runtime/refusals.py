"""Answers that need no shard: the table of docs/design.md#loading, and the result type of each
request.

Pure functions over tables; the one place where an error code becomes a result without the core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests import (
    AlterGroupConfigs,
    AlterGroupConfigsResult,
    ChangeTopics,
    ChangeTopicsResult,
    DeleteGroup,
    DescribeGroup,
    DescribeGroupResult,
    EndSession,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    ListGroups,
    ListGroupsResult,
    OffsetCommit,
    OffsetCommitResult,
    OffsetDelete,
    OffsetDeleteResult,
    OffsetFetch,
    OffsetFetchResult,
    ReadGroup,
    ReadGroupResult,
    Request,
    Result,
    SyncGroup,
    SyncGroupResult,
)

LOADING_ANSWER: Final[Mapping[type, ErrorCode]] = {
    Heartbeat: ErrorCode.NONE,  # as Kafka: members survive a coordinator that starts
    SyncGroup: ErrorCode.REBALANCE_IN_PROGRESS,  # 14 is fatal to the Java client there
    JoinGroup: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    LeaveGroup: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    OffsetCommit: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    OffsetFetch: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,  # require-stable: see loading_answer
    ListGroups: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    DescribeGroup: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ReadGroup: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    EndSession: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    DeleteGroup: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    OffsetDelete: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ChangeTopics: ErrorCode.NOT_CONTROLLER,
    AlterGroupConfigs: ErrorCode.NOT_CONTROLLER,
}
"""What a LOADING shard answers at once (docs/design.md#loading)."""

OVERLOAD_ANSWER: Final[Mapping[type, ErrorCode]] = {
    SyncGroup: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    JoinGroup: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    LeaveGroup: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    OffsetCommit: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Older consumers retry no other code there (docs/spec/admission.md#storage-failures).
    OffsetFetch: ErrorCode.NOT_COORDINATOR,
    ListGroups: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    DescribeGroup: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ReadGroup: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    EndSession: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    DeleteGroup: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    OffsetDelete: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ChangeTopics: ErrorCode.NOT_CONTROLLER,
    AlterGroupConfigs: ErrorCode.NOT_CONTROLLER,
}
"""What is answered when too much waits for storage. Every code here makes clients look the
coordinator up again after their back-off and repeat the request. Heartbeats are missing on purpose:
they write nothing, and refusing one would let its session run out.
"""

_REFUSE: Final[Mapping[type, Callable[[Any, ErrorCode], Result]]] = {
    JoinGroup: lambda _, code: JoinGroupResult(code, ""),
    SyncGroup: lambda _, code: SyncGroupResult(code),
    Heartbeat: lambda _, code: code,
    LeaveGroup: lambda _, code: LeaveGroupResult(code),
    OffsetCommit: lambda _, code: OffsetCommitResult(code),
    OffsetFetch: lambda _, code: OffsetFetchResult(code, []),
    ListGroups: lambda _, code: ListGroupsResult(code),
    DescribeGroup: lambda request, code: DescribeGroupResult(code, request.group_id),
    ReadGroup: lambda _, code: ReadGroupResult(code),
    EndSession: lambda _, code: code,
    DeleteGroup: lambda _, code: code,
    OffsetDelete: lambda _, code: OffsetDeleteResult(code),
    ChangeTopics: lambda _, code: ChangeTopicsResult(_controller_code(code)),
    AlterGroupConfigs: lambda _, code: AlterGroupConfigsResult(_controller_code(code)),
}

_REPLACE: Final[Mapping[type, Callable[[Any, ErrorCode], Result]]] = {
    JoinGroupResult: lambda _, code: JoinGroupResult(code, ""),
    SyncGroupResult: lambda _, code: SyncGroupResult(code),
    ErrorCode: lambda _, code: code,
    LeaveGroupResult: lambda _, code: LeaveGroupResult(code),
    OffsetCommitResult: lambda _, code: OffsetCommitResult(code),
    OffsetFetchResult: lambda _, code: OffsetFetchResult(code, []),
    ListGroupsResult: lambda _, code: ListGroupsResult(code),
    OffsetDeleteResult: lambda _, code: OffsetDeleteResult(code),
    DescribeGroupResult: lambda result, code: DescribeGroupResult(code, result.group_id),
    ReadGroupResult: lambda _, code: ReadGroupResult(code),
    ChangeTopicsResult: lambda _, code: ChangeTopicsResult(_controller_code(code)),
    AlterGroupConfigsResult: lambda _, code: AlterGroupConfigsResult(_controller_code(code)),
}


def refuse(request: Request, code: ErrorCode) -> Result:
    """Return the result that answers a request with this code as a whole."""
    return _REFUSE[type(request)](request, code)


def replace_result(result: Result, code: ErrorCode) -> Result:
    """Return what is answered instead of a result that may no longer be told."""
    return _REPLACE[type(result)](result, code)


def loading_answer(request: Request) -> Result:
    """Return what a LOADING shard answers."""
    code = LOADING_ANSWER[type(request)]
    if isinstance(request, OffsetFetch) and request.require_stable:
        code = ErrorCode.NOT_COORDINATOR  # older consumers do not retry 14 there
    return refuse(request, code)


def overload_answer(request: Request) -> Result:
    """Return what is answered when too much waits for storage."""
    return refuse(request, OVERLOAD_ANSWER[type(request)])


def _controller_code(code: ErrorCode) -> ErrorCode:
    """Topics and configs have a controller where groups have a coordinator."""
    return ErrorCode.NOT_CONTROLLER if code is ErrorCode.NOT_COORDINATOR else code
