"""A failed append counts once. An abandoned append may continue and answer late."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from groupkeeper.storage.base import StorageError
from tests.helpers.runtime.virtual_loop import START_WALL_MS, virtual_time
from tests.simulation.history import Durable
from tests.simulation.store import Misfortune, SharedMemory, SimStore

OUTLIVES, FAILS = 0.3, 1.0
"""The faults of an append, by weight."""


class Fate(Misfortune):
    """Lets the chosen fault happen."""

    def __init__(self, *, has_to_happen: float | None) -> None:
        super().__init__(Random(0), lambda: None)
        self.has_to_happen = has_to_happen

    def happens(self, weight: float) -> bool:
        return weight == self.has_to_happen


async def begin(has_to_happen=None):
    """A store with an append that is in flight."""
    fate, durable = Fate(has_to_happen=None), Durable()
    inner = SharedMemory(durable, lambda: START_WALL_MS)
    store = SimStore(inner, fate, durable, one_lane=True)
    await store.acquire([0], "a")
    fate.has_to_happen = has_to_happen
    append = asyncio.ensure_future(store.append([]))
    await asyncio.sleep(0)
    return store, append


@virtual_time
async def test_one_that_may_still_fail_counts_until_it_has_not():
    store, append = await begin()
    assert store.appends_failed == 1
    assert await append == []
    assert store.appends_failed == 0


@virtual_time
async def test_one_that_fails_counts():
    store, append = await begin(FAILS)
    with pytest.raises(StorageError):
        await append
    assert store.appends_failed == 1


@virtual_time
async def test_one_that_is_given_up_counts_and_is_gone():
    store, append = await begin()
    append.cancel()
    with pytest.raises(asyncio.CancelledError):
        await append
    assert store.appends_failed == 1


@virtual_time
async def test_one_that_outlives_its_caller_answers_late_and_counts_all_the_same():
    store, append = await begin(OUTLIVES)
    append.cancel()
    assert await append == []
    assert store.appends_failed == 1
