"""What an earlier version wrote is read by this one: its stores, its members, its history."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.storage.event_log.check import verify
from tests.helpers.storage.released_data import DATA, opened, told

VERSIONS = sorted(path.name for path in DATA.iterdir())
STORES = [(version, how) for version in VERSIONS for how in ("killed", "stopped")]


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
    written = len(expected["events"])
    assert found["events"][:written] == expected["events"]
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
