"""``docs/coming-from.md`` names only what exists, and every name that people come with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.config import setting_names
from tests.helpers.printed_docs import ROOT

TEXT = (ROOT / "docs" / "coming-from.md").read_text()

IMPORTS = TEXT.split("```python\n")[1].split("```")[0]

THE_GO_PACKAGE = [
    "NewGroupCoordinator",
    "GetCommittedOffset",
    "GetGroup",
    "HandleHeartbeat",
    "HandleJoinGroup",
    "HandleLeaveGroup",
    "HandleOffsetCommit",
    "HandleOffsetFetch",
    "HandleSyncGroup",
    "ListGroups",
    "PerformAssignment",
    "Stop",
    "CoordinatorConfig",
    "DefaultCoordinatorConfig",
    "DefaultSessionTimeoutMs",
    "DefaultRebalanceTimeoutMs",
    "MinSessionTimeoutMs",
    "MaxSessionTimeoutMs",
    "HeartbeatCheckIntervalMs",
    "OffsetRetentionMs",
    "GroupError",
    "GroupMetadata",
    "GroupOffsets",
    "GroupState",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "JoinGroupMember",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "MemberAssignment",
    "MemberAssignmentData",
    "MemberMetadata",
    "MemberState",
    "MemberSubscription",
    "MemoryOffsetStorage",
    "NewMemoryOffsetStorage",
    "DeleteOffsets",
    "FetchOffset",
    "FetchOffsets",
    "StoreOffset",
    "MetadataStore",
    "OffsetAndMetadata",
    "OffsetCommitData",
    "OffsetCommitLog",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetFetchData",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetManager",
    "NewOffsetManager",
    "CommitOffset",
    "GetAllOffsets",
    "GetOffset",
    "ResetOffsets",
    "ValidateOffset",
    "OffsetStorage",
    "PartitionAssignor",
    "GetAssignor",
    "PersistentOffsetStorage",
    "NewPersistentOffsetStorage",
    "ProtocolMetadata",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "AssignWithPrevious",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "TopicPartition",
]
"""Its exported functions, types and methods, and the fields of its config."""


def cells(section: str, column: int) -> Iterator[str]:
    """What stands in backticks in one column of the tables of a section."""
    for line in section.splitlines():
        if line.startswith("| ") and not line.startswith(("| ---", "| theirs")):
            yield from re.findall(r"`([^`]+)`", line.split(" | ")[column])


def namespace() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(IMPORTS, names)
    return names


def is_there(name: str, names: dict[str, Any]) -> bool:
    """Whether a dotted name leads somewhere; a field of a class that has no default counts."""
    first, *rest = name.split(".")
    if first not in names:
        return False
    at = names[first]
    for each in rest:
        fields = {f for c in getattr(at, "__mro__", ()) for f in getattr(c, "__annotations__", {})}
        if not hasattr(at, each) and each not in fields:
            return False
        at = getattr(at, each, None)
    return True


def test_every_name_of_ours_exists() -> None:
    names = namespace()
    ours = list(cells(TEXT, 1))
    assert len(ours) > 100
    assert [n for n in ours if n not in setting_names() and not is_there(n, names)] == []


def test_whatever_is_imported_is_used() -> None:
    used = {name.split(".")[0] for column in (1, 2) for name in cells(TEXT, column)}
    assert {n for n in namespace() if not n.startswith("__")} - used == set()


@pytest.mark.parametrize("name", THE_GO_PACKAGE)
def test_every_name_of_the_go_package_has_its_row(name: str) -> None:
    section = TEXT.split("## The Go package")[1].split("\n## ")[0]
    assert name in set(cells(section, 0)) | {c.split(".")[-1] for c in cells(section, 0)}


@pytest.mark.parametrize("system", ["kafka-go", "Sarama", "kazoo-go", "Kafka Go"])
def test_every_system_has_a_table(system: str) -> None:
    (section,) = [s for s in TEXT.split("\n## ")[1:] if system in s.splitlines()[0]]
    assert len(list(cells(section, 0))) > 8
