"""What a retention pass keeps (ends of partitions), and how it is cut into steps."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.offsets import retention
from groupkeeper.coordinator.core.records import OffsetsRemoved, PartitionEnd
from tests.helpers.core.shard_driver import ORDERS, ShardDriver

CHECK_MS = 600_000
RETENTION_MS = 3_600_000


@pytest.fixture
def driver():
    return ShardDriver(offsets_retention_ms=RETENTION_MS, retention_check_interval_ms=CHECK_MS)


def test_the_end_that_an_expired_offset_held_is_kept(driver):
    driver.commit(topics={"orders": {0: 500}})
    driver.advance(RETENTION_MS + CHECK_MS)
    assert PartitionEnd(ORDERS.topic_id, 0, 500) in driver.records
    assert driver.shard.ends()[ORDERS.topic_id, 0] == 500


def test_the_expired_offsets_of_a_large_group_are_cut_into_steps(driver, monkeypatch):
    monkeypatch.setattr(retention, "MAX_OFFSETS_PER_STEP", 4)
    driver.commit("g", {"orders": dict.fromkeys(range(10), 1)})
    before = len(driver.steps)
    driver.advance(RETENTION_MS + CHECK_MS)
    assert driver.list_groups() == {}
    removed = [r for step in driver.steps[before:] for r in step.records]
    assert [len(r.partitions) for r in removed if isinstance(r, OffsetsRemoved)] == [4, 4, 2]


def test_a_pass_over_many_groups_is_cut_into_steps(driver, monkeypatch):
    monkeypatch.setattr(retention, "MAX_OFFSETS_PER_STEP", 10)
    for number in range(30):
        driver.commit(f"g{number}", {"payments": {0: 100 - number}})
    before = len(driver.steps)
    driver.advance(RETENTION_MS + CHECK_MS)
    assert driver.list_groups() == {}
    sizes = [len(step.records) for step in driver.steps[before:]]
    assert sum(sizes) == 30 * 2 + 1, "offsets and group of each, and the end that one of them held"
    assert max(sizes) <= 5 * 2 + 1
