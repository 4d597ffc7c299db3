"""The limits that all groups of a coordinator share, and their log lines."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.groups.census import Census, Tally
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.embed.messages import OffsetCommitRequest
from groupkeeper.coordinator.runtime.limit_log import WINDOW_S, LimitLog
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from tests.helpers.runtime.embedded import a_commit

FULL = ErrorCode.COORDINATOR_NOT_AVAILABLE


def commit(group_id: str) -> OffsetCommitRequest:
    return a_commit(5, group_id=group_id)


async def test_groups_of_all_shards_count() -> None:
    coordinator = GroupCoordinator(MemoryOffsetStorage(), CoordinatorConfig(max_groups=20))
    await coordinator.start()
    answers = [await coordinator.commit_offsets(commit(f"g-{n}")) for n in range(25)]
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 20 + [FULL] * 5
    assert sum(coordinator.groups_by_state().values()) == 20
    assert coordinator.groups_refused == 5
    await coordinator.stop()


async def test_a_store_with_more_groups_than_the_limit_is_served(tmp_path: Path) -> None:
    path = tmp_path / "groupkeeper.db"
    first = GroupCoordinator(SqliteOffsetStorage(path))
    await first.start()
    for number in range(5):
        await first.commit_offsets(commit(f"g-{number}"))
    await first.stop()
    again = GroupCoordinator(SqliteOffsetStorage(path), CoordinatorConfig(max_groups=3))
    await again.start()
    for number in range(5):
        assert (await again.commit_offsets(commit(f"g-{number}"))).error_code is ErrorCode.NONE
    assert (await again.commit_offsets(commit("one more"))).error_code is FULL
    await again.stop()


def test_each_limit_is_logged_once_a_minute() -> None:
    now_s = 0.0
    census = Census(1, 10_000, LimitLog(lambda: now_s).refused)
    tally = Tally()
    tally.groups = 1
    census.count(0, tally)
    with capture_logs() as lines:
        for _ in range(100):
            assert not census.admits()
            assert not census.admits_metadata(20_000, 20_000)
            assert not census.admits_assignment(20_001, 20_001)
        now_s = WINDOW_S
        assert not census.admits()
    assert [line["event"] for line in lines] == [
        "group_limit_reached",
        "member_metadata_limit_reached",
        "assignment_limit_reached",
        "group_limit_reached",
    ]
    assert [line["refused"] for line in lines if "refused" in line] == [1, 101]
    assert [line["refused_bytes"] for line in lines if "refused_bytes" in line] == [20_000, 20_001]
