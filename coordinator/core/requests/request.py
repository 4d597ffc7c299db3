"""Every request, as one type."""

from __future__ import annotations

from typing import Final, TypeAlias, get_args

from groupkeeper.coordinator.core.requests.admin import (
    DeleteGroup,
    DescribeGroup,
    ListGroups,
    ReadGroup,
)
from groupkeeper.coordinator.core.requests.adoption import MarkAdoption, ReadAdoption
from groupkeeper.coordinator.core.requests.consumer import (
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
)
from groupkeeper.coordinator.core.requests.membership import (
    EndSession,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit, OffsetDelete, OffsetFetch
from groupkeeper.coordinator.core.requests.topics import (
    AlterGroupConfigs,
    ChangeTopics,
    ChangeUpstream,
)
from groupkeeper.coordinator.core.requests.transactions import (
    ConfirmPending,
    DropPending,
    EndTransactions,
    MoveJournal,
    ReadPending,
    TxnOffsetCommit,
)

Request: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | ListGroups
    | DescribeGroup
    | ReadGroup
    | EndSession
    | DeleteGroup
    | OffsetDelete
    | ChangeTopics
    | AlterGroupConfigs
    | ChangeUpstream
    | ConsumerGroupHeartbeat
    | ConsumerGroupDescribe
    | TxnOffsetCommit
    | EndTransactions
    | ConfirmPending
    | DropPending
    | MoveJournal
    | ReadPending
    | ReadAdoption
    | MarkAdoption
)

PARKED_RESULTS: Final = frozenset(kind.result for kind in get_args(Request) if kind.parks)
"""The result types of requests that may be parked."""
