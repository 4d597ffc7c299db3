"""What an earlier version wrote is read by this one: its stores, its members, its history."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, NewTopic
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.protocol.consumer_protocol import decode_assignment
from groupkeeper.storage.event_log.check import verify
from tests.helpers.storage.released_data import (
    CLIENT,
    CONSUMER_GROUP,
    CONSUMERS,
    DATA,
    LEFT,
    LIVE,
    MATCHED,
    MIXED_GROUP,
    PATTERN_GROUP,
    REVOKING,
    UNMATCHED,
    WAITING,
    classic_heartbeat,
    classic_join,
    classic_sync,
    consumer_heartbeat,
    opened,
    told,
    until_epoch,
)

VERSIONS = sorted(path.name for path in DATA.iterdir())
STORES = [(version, how) for version in VERSIONS for how in ("killed", "stopped")]


SINCE = {"store": ""}
"""The fields that an event has got since, of the kinds in those files."""


def test_the_files_of_the_first_version_are_kept() -> None:
    assert "0.1.0" in VERSIONS


def test_the_kept_files_have_rows_in_every_form(tmp_path: Path) -> None:
    forms = {(version, form) for version in VERSIONS for form in forms_of_rows(version, tmp_path)}
    assert ("0.2.0.dev12", "text") in forms
    assert {("0.2.0.dev13", "text"), ("0.2.0.dev13", "blob")} <= forms


def forms_of_rows(version: str, tmp_path: Path) -> set[str]:
    """The types of the payloads in the log of a version."""
    directory = tmp_path / version  # SQLite writes beside a file that it reads
    shutil.copytree(DATA / version / "killed", directory)
    with closing(sqlite3.connect(directory / "store.db")) as connection:
        return {form for (form,) in connection.execute("SELECT typeof(payload) FROM log")}


@pytest.mark.parametrize(("version", "how"), STORES)
async def test_the_files_of_a_version_load_with_all_that_was_in_them(
    version: str, how: str, tmp_path: Path
) -> None:
    directory = tmp_path / how
    shutil.copytree(DATA / version / how, directory)
    expected: dict[str, Any] = json.loads((DATA / version / "expected.json").read_text())
    coordinator = opened(directory)
    await coordinator.start()
    found = json.loads(json.dumps(await told(coordinator, directory)))
    assert found["groups"] == expected["groups"]
    assert found.get("consumer_groups") == expected.get("consumer_groups")
    written = len(expected["events"])
    for event, before in zip(found["events"][:written], expected["events"], strict=True):
        new = {name: value for name, value in event.items() if name not in before}
        assert event == before | new
        assert new in ({}, SINCE), event["kind"]
    assert coordinator.topics is not None
    ends = {
        name: coordinator.topics.image.by_name[name].partitions for name in ("orders", "payments")
    }
    assert ends == {"orders": 6, "payments": 2}
    payments = coordinator.topics.image.by_name["payments"].topic_id
    assert coordinator.topics.end_offset(payments, 0) == 900
    assert coordinator.group_configs.of("billing") == {"commit.monotonic": "true"}
    await coordinator.stop()
    assert verify(directory / "log").is_sound


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_a_consumer_group_goes_on_where_it_was_and_nobody_notices(
    how: str, tmp_path: Path
) -> None:
    directory = tmp_path / how
    shutil.copytree(DATA / "0.2.0.dev5" / how, directory)
    coordinator = opened(directory)
    await coordinator.start()
    assert coordinator.topics is not None
    orders = coordinator.topics.image.by_name["orders"].topic_id
    first, second = CONSUMERS
    assert (await coordinator.ask(consumer_heartbeat(second, 3))).assignment is None
    answer = await coordinator.ask(
        consumer_heartbeat(first, 2, group_instance_id="till-2", owned=((orders, (0, 1, 2)),))
    )
    assert (answer.error, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, 3, None)
    answer = await coordinator.ask(consumer_heartbeat(second, 3))
    assert (answer.member_epoch, answer.assignment) == (3, ((orders, (3, 4, 5)),))
    (group,) = [g for g in await coordinator.list_groups() if g.group_id == CONSUMER_GROUP]
    assert group.state == "Stable"
    await coordinator.stop()


async def _beat(coordinator: GroupCoordinator, member_id: str, epoch: int, **changes: Any) -> Any:
    changes = {"group_id": MIXED_GROUP, "group_instance_id": member_id, **changes}
    answer = await coordinator.ask(consumer_heartbeat(member_id, epoch, **changes))
    assert answer.error is ErrorCode.NONE
    return answer


async def _sync(coordinator: GroupCoordinator, member_id: str, epoch: int) -> list[int]:
    answer = await coordinator.ask(classic_sync(member_id, epoch))
    assert answer.error is ErrorCode.NONE
    return decode_assignment(answer.assignment).partitions.get("orders", [])


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_members_of_both_protocols_go_on_where_they_were(how: str, tmp_path: Path) -> None:
    """One must give up partitions, two wait for them, and one has left for a short time."""
    shutil.copytree(DATA / "0.2.0.dev12" / how, tmp_path / how)
    coordinator = opened(tmp_path / how)
    await coordinator.start()
    assert coordinator.topics is not None
    orders = coordinator.topics.image.by_name["orders"].topic_id
    # Nothing is free yet.
    assert (await _beat(coordinator, LIVE, 2)).member_epoch == 4
    assert (await _beat(coordinator, LIVE, 4)).assignment is None
    assert await coordinator.ask(classic_heartbeat(WAITING, 4)) is ErrorCode.NONE
    # One gives up five of its six partitions.
    must_join = ErrorCode.REBALANCE_IN_PROGRESS
    assert await coordinator.ask(classic_heartbeat(REVOKING, 1)) is must_join
    assert await _sync(coordinator, REVOKING, 1) == [0, 1]
    assert (await coordinator.ask(classic_join(REVOKING, 0, 1))).generation_id == 1
    assert await _sync(coordinator, REVOKING, 1) == [0]
    assert (await coordinator.ask(classic_join(REVOKING, 0))).generation_id == 4
    assert await _sync(coordinator, REVOKING, 4) == [0]
    # The others get them.
    assert await coordinator.ask(classic_heartbeat(WAITING, 4)) is must_join
    assert (await coordinator.ask(classic_join(WAITING))).generation_id == 4
    assert await _sync(coordinator, WAITING, 4) == [1]
    assert (await _beat(coordinator, LIVE, 4)).assignment == ((orders, (3, 4)),)
    returned = await _beat(coordinator, "returned", 0, group_instance_id=LEFT)
    assert (returned.member_epoch, returned.assignment) == (4, ((orders, (2, 5)),))
    (group,) = [g for g in await coordinator.list_groups() if g.group_id == MIXED_GROUP]
    assert group.state == "Stable"
    assert sorted(group.members) == sorted([REVOKING, WAITING, LIVE, "returned"])
    await coordinator.stop()


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_patterns_go_on_with_the_topics_that_were_found(how: str, tmp_path: Path) -> None:
    shutil.copytree(DATA / "0.2.0.dev12" / how, tmp_path / how)
    coordinator = opened(tmp_path / how)
    await coordinator.start()
    assert coordinator.topics is not None
    fields: dict[str, Any] = {"group_id": PATTERN_GROUP, "group_instance_id": None}
    answer = await _beat(coordinator, MATCHED, 2, **fields)
    assert (answer.member_epoch, answer.assignment) == (2, None)
    (group,) = [g for g in await coordinator.list_groups() if g.group_id == PATTERN_GROUP]
    assert group.state == "Stable"
    await coordinator.stop()
    coordinator = opened(tmp_path / how)
    await coordinator.start()
    assert coordinator.topics is not None
    new = [NewTopic(name, 1, f"{name}-id".ljust(22, "A")) for name in ("other", "absent-1")]
    await coordinator.topics.change_and_wait(ChangeTopics(CLIENT, tuple(new)))
    assert (await _beat(coordinator, UNMATCHED, 2, **fields)).member_epoch == 2
    await until_epoch(coordinator, PATTERN_GROUP, 3)
    answer = await _beat(coordinator, MATCHED, 2, **fields)
    assert (answer.member_epoch, answer.assignment) == (3, None)
    answer = await _beat(coordinator, UNMATCHED, 2, **fields)
    matched = coordinator.topics.image.by_name["absent-1"].topic_id
    assert (answer.member_epoch, answer.assignment) == (3, ((matched, (0,)),))
    await coordinator.stop()
