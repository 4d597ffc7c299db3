"""Reads of a host's store that fail in ways of their own: every request is answered, and other
groups are served.
"""

from __future__ import annotations

import asyncio

import pytest

from coordinator.core.errors import ErrorCode
from coordinator.service import CoordinatorConfig, GroupCoordinator
from storage.persistent import GroupOffsets, PersistentOffsetStorage
from tests.helpers.dict_store import DictStore
from tests.helpers.embedded import a_commit
from tests.helpers.virtual_loop import VirtualClock, virtual_time, virtual_timer

CONFIG = CoordinatorConfig(shards=4, append_timeout_ms=1_000)
PLACE = ("orders", 0)


class FailingReads(DictStore):
    """Reads of a group raise what they are told to, as often."""

    def __init__(self) -> None:
        super().__init__()
        self.raised: dict[str, list[BaseException]] = {}

    async def fetch_all(self, group_id: str) -> GroupOffsets:  # type: ignore[override]
        await asyncio.sleep(0)
        if self.raised.get(group_id):
            raise self.raised[group_id].pop()
        return super().fetch_all(group_id)


async def a_coordinator(store: DictStore) -> GroupCoordinator:
    storage = PersistentOffsetStorage(store)
    coordinator = GroupCoordinator(storage, CONFIG, clock=VirtualClock(), timer=virtual_timer)
    await coordinator.start()
    return coordinator


async def commit(coordinator: GroupCoordinator, offset: int, group_id: str) -> ErrorCode:
    answer = await coordinator.commit_offsets(a_commit(offset, group_id=group_id))
    return ErrorCode(answer.error_code)


@virtual_time
async def test_a_read_that_the_store_cancels_by_itself_is_answered_and_tried_again() -> None:
    """A pool whose readers wait for one connection, and the first of them ran out of time."""
    store = FailingReads()
    store.raised["g"] = [asyncio.CancelledError()]
    coordinator = await a_coordinator(store)
    assert await commit(coordinator, 1, "g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await commit(coordinator, 1, "g") is ErrorCode.NONE
    await coordinator.stop()


@pytest.mark.parametrize("error", [ConnectionError("gone"), asyncio.CancelledError()])
@virtual_time
async def test_a_group_that_cannot_be_read_after_a_failed_write_holds_up_no_other(
    error: BaseException,
) -> None:
    store = FailingReads()
    coordinator = await a_coordinator(store)
    for group_id in ("bad", "a", "b"):
        assert await commit(coordinator, 1, group_id) is ErrorCode.NONE
    store.raised["bad"] = [error] * 1_000
    store.failures["store"] = 1
    assert await commit(coordinator, 2, "a") is not ErrorCode.NONE
    await asyncio.sleep(1)
    assert await commit(coordinator, 2, "b") is ErrorCode.NONE
    assert await commit(coordinator, 2, "bad") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    store.raised.clear()
    assert await commit(coordinator, 2, "bad") is ErrorCode.NONE
    await coordinator.stop()


@virtual_time
async def test_the_group_of_the_empty_name_is_read_like_any_other() -> None:
    store = DictStore()
    coordinator = await a_coordinator(store)
    assert await commit(coordinator, 7, "") is ErrorCode.NONE
    await coordinator.stop()
    again = await a_coordinator(store)
    assert await again.get_committed_offset("", *PLACE) == 7
    await again.stop()
