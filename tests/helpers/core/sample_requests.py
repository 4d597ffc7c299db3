"""A request of each type."""

from __future__ import annotations

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
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.requests.topics import (
    AlterGroupConfigs,
    ChangeTopics,
    ChangeUpstream,
)
from groupkeeper.coordinator.core.requests.transactions import (
    ConfirmPending,
    DropPending,
    EndedTransaction,
    EndTransactions,
    MoveJournal,
    ReadPending,
    TxnOffsetCommit,
)
from tests.helpers.runtime.coordinator import CLIENT, a_commit

REQUESTS: dict[type, Request] = {
    JoinGroup: JoinGroup(
        "g", "m", None, "consumer", (), 10_000, 60_000, "minted", True, True, CLIENT
    ),
    SyncGroup: SyncGroup("g", 1, "m", None, None, None, (), CLIENT),
    Heartbeat: Heartbeat("g", 1, "m", None, CLIENT),
    LeaveGroup: LeaveGroup("g", (), CLIENT),
    OffsetCommit: a_commit(),
    OffsetFetch: OffsetFetch("g", None, False, False),
    ListGroups: ListGroups(),
    DescribeGroup: DescribeGroup("g"),
    ReadGroup: ReadGroup("g"),
    EndSession: EndSession("g", "m"),
    DeleteGroup: DeleteGroup("g", CLIENT),
    OffsetDelete: OffsetDelete("g", (), CLIENT),
    ChangeTopics: ChangeTopics(CLIENT),
    AlterGroupConfigs: AlterGroupConfigs(CLIENT, ()),
    ChangeUpstream: ChangeUpstream(CLIENT),
    ConsumerGroupHeartbeat: ConsumerGroupHeartbeat(
        "g", "m", 1, None, None, -1, None, None, None, None, None, "", CLIENT
    ),
    ConsumerGroupDescribe: ConsumerGroupDescribe("g"),
    TxnOffsetCommit: TxnOffsetCommit(
        "g", -1, "", None, [("orders", "", [(0, 7, -1, "")])], 9, 0, "pending-1", CLIENT
    ),
    EndTransactions: EndTransactions(
        0, (EndedTransaction(9, ("pending-1",), True),), "journal-id", 5
    ),
    ConfirmPending: ConfirmPending(0, "pending-1"),
    DropPending: DropPending(0, ("pending-1",)),
    MoveJournal: MoveJournal(0, "journal-id", 5),
    ReadPending: ReadPending(0),
    ReadAdoption: ReadAdoption("g"),
    MarkAdoption: MarkAdoption("g", True),
}
