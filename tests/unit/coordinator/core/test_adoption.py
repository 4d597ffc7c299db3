"""What a shard remembers of groups that are not adopted, or not completely
(docs/design.md#adoption).
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.records import (
    ADOPTION_BEGUN,
    GROUP_REMOVED,
    AdoptionMark,
    GroupRemoved,
)
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.adoption import MarkAdoption, ReadAdoption
from tests.helpers.core.shard_driver import CLIENT, ShardDriver

RETENTION_MS = 3_600_000


@pytest.fixture
def driver(make_driver):
    """A driver as in gateway mode, that remembers two groups."""
    return make_driver(max_remembered_groups=2, offsets_retention_ms=RETENTION_MS)


def read(driver: ShardDriver, group_id: str = "g") -> tuple[bool, str]:
    result = driver.send(ReadAdoption(group_id)).result
    assert result.error is ErrorCode.NONE
    return result.exists, result.state


def delete(driver: ShardDriver, group_id: str = "g") -> None:
    assert driver.send(DeleteGroup(group_id, CLIENT)).error is ErrorCode.NONE


@pytest.mark.parametrize("from_fold", [False, True])
def test_deleted_group_is_remembered_after_a_restart(driver, from_fold):
    driver.commit()
    assert read(driver) == (True, "")
    delete(driver)
    driver.reload(from_fold=from_fold)
    assert read(driver) == (False, GROUP_REMOVED)
    driver.commit()
    assert read(driver) == (True, GROUP_REMOVED), "a new group, and still not that of the upstream"


def test_removal_and_its_mark_are_one_step(driver):
    driver.commit()
    delete(driver)
    kinds = {type(record) for record in driver.steps[-1].records}
    assert kinds >= {GroupRemoved, AdoptionMark}


def test_expired_group_is_remembered(driver):
    driver.commit()
    driver.advance(3 * RETENTION_MS)
    assert read(driver) == (False, GROUP_REMOVED)


@pytest.mark.parametrize("restarts", [False, True])
def test_oldest_removal_is_forgotten_above_the_limit(driver, restarts):
    for group_id in ("z", "b", "a"):
        driver.commit(group_id)
    for group_id in ("z", "b"):
        delete(driver, group_id)
        driver.advance(1)
    if restarts:  # a store may return the records in another order
        marks = sorted(driver.shard.adoptions.records(), key=lambda mark: mark.group_id)
        driver.load(*marks)
    delete(driver, "a")
    driver.reload(from_fold=True)
    assert [read(driver, each)[1] for each in ("z", "b", "a")] == ["", *[GROUP_REMOVED] * 2]


def test_group_that_is_removed_again_counts_once_and_is_the_newest(driver):
    for group_id in ("a", "b", "a", "c"):
        driver.commit(group_id)
        delete(driver, group_id)
        driver.advance(1)
    assert [read(driver, each)[1] for each in "abc"] == [GROUP_REMOVED, "", GROUP_REMOVED]


def test_long_ids_take_more_places(make_driver):
    driver = make_driver(max_remembered_groups=3)
    long = "l" * 200
    for group_id in ("a", "b", long):
        driver.commit(group_id)
        delete(driver, group_id)
        driver.advance(1)
    driver.reload()
    assert [read(driver, each)[1] for each in ("a", "b", long)] == ["", *[GROUP_REMOVED] * 2]
    driver.commit("c" * 10_000)
    delete(driver, "c" * 10_000)
    assert [*driver.shard.adoptions.records()] == [], "no limit is large enough for it"


def test_nothing_is_remembered_outside_of_gateway_mode(make_driver):
    driver = make_driver()
    driver.commit()
    delete(driver)
    assert driver.records_of(AdoptionMark) == []


def test_deletion_of_a_half_adopted_group_leaves_its_mark(driver):
    assert driver.send(MarkAdoption("g", True)).error is ErrorCode.NONE
    driver.commit()
    delete(driver)
    driver.reload()
    assert read(driver) == (False, ADOPTION_BEGUN)
    assert driver.send(MarkAdoption("g", False)).error is ErrorCode.NONE
    driver.reload(from_fold=True)
    assert read(driver) == (False, "")


def test_adoption_that_has_begun_is_never_forgotten_for_a_removal(make_driver):
    driver = make_driver(max_remembered_groups=2)
    driver.send(MarkAdoption("begun", True))
    driver.commit()
    delete(driver)
    driver.commit("h")
    delete(driver, "h")
    assert read(driver, "begun") == (False, ADOPTION_BEGUN)
    assert [read(driver, each)[1] for each in "gh"] == ["", GROUP_REMOVED]


def test_same_mark_again_writes_nothing(driver):
    driver.send(MarkAdoption("g", True))
    written = len(driver.records)
    driver.send(MarkAdoption("g", True))
    assert len(driver.records) == written
