"""``docs/reference/coming-from.md`` names only what exists, and every name people come with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from groupkeeper.coordinator.daemon.setting_names import setting_names
from tests.helpers.clients import compatibility, go_group_package
from tests.helpers.printed.printed_docs import ROOT

TEXT = (ROOT / "docs" / "reference" / "coming-from.md").read_text()

IMPORTS = TEXT.split("```python\n")[1].split("```")[0]

OTHER_NAMES = {
    "kafka-go": (
        "NewConsumerGroup Dialer Timeout PartitionWatchInterval Generation Assignments "
        "PartitionAssignment Start RetentionTime StartOffset ErrGenerationEnded ErrGroupClosed"
    ),
    "kazoo-go": (
        "ErrRunningInstances ErrInstanceAlreadyRegistered ErrInstanceNotRegistered "
        "ErrPartitionClaimedByOther ErrPartitionNotClaimed ConsumergroupList "
        "ConsumergroupInstanceList Registration RegPattern RegPatternStatic RegPatternWhiteList "
        "RegPatternBlackList RegVersion RegDefaultVersion Consumergroups Consumergroup Exists "
        "Create Delete Instances WatchInstances NewInstance Instance PartitionOwner "
        "WatchPartitionOwner Registered WatchRegistration Register RegisterWithSubscription "
        "UpdateRegistration Pattern Subscription Timestamp Version Len Less Swap "
        "Deregister ClaimPartition ReleasePartition Topics CommitOffset "
        "FetchOffset FetchAllOffsets ResetOffsets Find"
    ),
    "Kafka Go": (
        "NewReader ReaderConfig BrokerAddrs Topic Partition Partitions Buffer RequestMaxWaitTime "
        "RequestMinBytes RequestMaxBytes context.Context Reader Read Close Offset Message Key "
        "Value MessageIter Next NewMultiIter NewConsulGroup ConsulConfig Name Addr "
        "Scheme Spread NewReaders"
    ),
}
"""Of the systems whose packages are larger than what their users of groups call."""


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


def theirs(system: str) -> set[str]:
    """What the table of a system has a row for, each name also without its type."""
    (section,) = [s for s in TEXT.split("\n## ")[1:] if system in s.splitlines()[0]]
    named = set(cells(section, 0))
    return named | {name.split(".")[-1] for name in named}


@pytest.mark.parametrize("name", go_group_package.NAMES)
def test_every_name_of_the_go_package_has_its_row(name: str) -> None:
    assert name in theirs("The Go package")


@pytest.mark.parametrize("struct", go_group_package.FIELDS)
def test_every_field_of_the_go_package_has_its_row_or_its_name_in_python(struct: str) -> None:
    names = namespace()
    ours = "ConsumerAssignment" if struct == "MemberAssignment" else struct
    rows = theirs("The Go package")
    for field in go_group_package.FIELDS[struct]:
        in_python = re.sub(r"(?<!^)(?=[A-Z])", "_", field.replace("ID", "Id")).lower()
        is_named = is_there(f"{ours}.{in_python}", names)
        assert is_named or field in rows, f"{struct}.{field}"


@pytest.mark.parametrize("system", OTHER_NAMES)
def test_what_users_of_groups_call_has_its_row(system: str) -> None:
    assert set(OTHER_NAMES[system].split()) - theirs(system) == set()


@pytest.mark.parametrize("system", ["kafka-go", "Sarama", "kazoo-go", "Kafka Go"])
def test_every_system_has_a_table(system: str) -> None:
    (section,) = [s for s in TEXT.split("\n## ")[1:] if system in s.splitlines()[0]]
    assert len(list(cells(section, 0))) > 8


@pytest.mark.parametrize("system", ["kafka-go", "Sarama"])
def test_what_is_said_of_a_client_is_shown_with_that_client(system: str) -> None:
    (section,) = [s for s in TEXT.split("\n## ")[1:] if system in s.splitlines()[0]]
    known = {scenario.name for scenario in compatibility.scenarios()}
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert len(rows) > 15
    for row in rows:
        shown = re.findall(r"`([^`]+)`", row.split(" | ")[3])
        assert set(shown) <= known, row
        # an error that is never returned cannot be shown
        assert shown or "never returned" in row, row
