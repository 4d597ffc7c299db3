"""Reads of a host's store that fail in ways of their own: every request is answered, and other
groups are served.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.backends.host import MAX_CALLS, PersistentOffsetStorage
from groupkeeper.storage.backends.metadata_store import GroupOffsets
from tests.helpers.runtime.embedded import a_commit
from tests.helpers.runtime.virtual_loop import VirtualClock, virtual_time, virtual_timer
from tests.helpers.storage.dict_store import DictStore
from tests.helpers.storage.faulty_storage import Gate

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


class HeldReads(DictStore):
    """Reads of some groups wait for a gate, and perhaps do not let themselves be cancelled."""

    def __init__(self, *, may_be_cancelled: bool = True) -> None:
        super().__init__()
        self.gates: dict[str, Gate] = {}
        self.reads: Counter[str] = Counter()
        self._may_be_cancelled = may_be_cancelled

    async def fetch_all(self, group_id: str) -> GroupOffsets:  # type: ignore[override]
        self.reads[group_id] += 1
        if group_id in self.gates:
            waiting = asyncio.ensure_future(self.gates[group_id].wait())
            while not waiting.done():
                try:
                    await asyncio.shield(waiting)
                except asyncio.CancelledError:
                    if self._may_be_cancelled:
                        waiting.cancel()
                        raise
        return super().fetch_all(group_id)


async def a_coordinator(store: DictStore) -> GroupCoordinator:
    storage = PersistentOffsetStorage(store, read_timeout_ms=1_000)
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


async def fails_once(
    coordinator: GroupCoordinator, store: HeldReads, hung: list[str], group_id: str
) -> None:
    """Have a write fail, so that every group is read again; reads of some will hang."""
    for each in (*hung, group_id):
        assert await commit(coordinator, 1, each) is ErrorCode.NONE
    store.gates = {each: Gate() for each in hung}
    store.failures["store"] = 1
    store.reads.clear()
    assert await commit(coordinator, 2, group_id) is not ErrorCode.NONE


@virtual_time
async def test_reads_that_hang_after_a_failed_write_hold_up_others_for_no_longer_than_one() -> None:
    store = HeldReads()
    coordinator = await a_coordinator(store)
    hung = [f"hung-{number}" for number in range(MAX_CALLS)]
    await fails_once(coordinator, store, hung, "g")
    await asyncio.sleep(1.5)
    assert await commit(coordinator, 2, "g") is ErrorCode.NONE
    assert [group.group_id for group in await coordinator.list_groups()] == ["g"]
    assert await commit(coordinator, 2, hung[0]) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    store.gates.clear()
    assert await commit(coordinator, 2, hung[0]) is ErrorCode.NONE
    await coordinator.stop()


@virtual_time
async def test_a_read_that_was_given_up_but_goes_on_is_the_only_one_of_its_group() -> None:
    store = HeldReads(may_be_cancelled=False)
    coordinator = await a_coordinator(store)
    await fails_once(coordinator, store, ["hung"], "g")
    await asyncio.sleep(1.5)
    assert await commit(coordinator, 2, "g") is ErrorCode.NONE
    for _ in range(2):
        assert await commit(coordinator, 2, "hung") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert store.reads["hung"] == 1
    late = asyncio.create_task(commit(coordinator, 2, "hung"))
    store.gates.pop("hung").open()
    assert await late is ErrorCode.NONE
    assert store.reads["hung"] == 2
    await coordinator.stop()


@virtual_time
async def test_a_second_failure_does_not_wait_again_for_a_read_that_goes_on() -> None:
    store = HeldReads(may_be_cancelled=False)
    coordinator = await a_coordinator(store)
    await fails_once(coordinator, store, ["hung"], "g")
    await asyncio.sleep(1.5)
    assert await commit(coordinator, 2, "g") is ErrorCode.NONE
    store.failures["store"] = 1
    assert await commit(coordinator, 3, "g") is not ErrorCode.NONE
    await asyncio.sleep(0.5)
    assert await commit(coordinator, 3, "g") is ErrorCode.NONE
    assert store.reads["hung"] == 1
    await coordinator.stop()


@pytest.mark.parametrize("wrong", [0, 1.5, None])
def test_the_time_for_a_read_is_a_number(wrong: float) -> None:
    with pytest.raises((TypeError, ValueError), match="read_timeout_ms must be"):
        PersistentOffsetStorage(DictStore(), read_timeout_ms=wrong)  # type: ignore[arg-type]
