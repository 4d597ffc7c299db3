"""What an earlier version wrote is read by this one: its stores, its members, its history."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.storage.event_log.check import verify
from tests.helpers.storage.released_data import (
    CONSUMER_GROUP,
    CONSUMERS,
    DATA,
    consumer_heartbeat,
    opened,
    told,
)

VERSIONS = sorted(path.name for path in DATA.iterdir())
STORES = [(version, how) for version in VERSIONS for how in ("killed", "stopped")]


SINCE = {"store": ""}
"""The fields that an event has got since, of the kinds in those files."""


def test_the_files_of_the_first_version_are_kept() -> None:
    assert "0.1.0" in VERSIONS


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
