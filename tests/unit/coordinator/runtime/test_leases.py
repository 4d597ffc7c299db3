"""Leases of a store that several processes share: what happens when they lapse or are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.runtime.clock import Clock, LoopClock
from groupkeeper.coordinator.runtime.leases import Leases
from groupkeeper.storage.base import Lease, ShardId
from tests.helpers.runtime.pipeline import a_pipeline
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage, Gate, slow


class WithReadTime(FaultyStorage):
    """A store whose leases lapse when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.left_ms = 1_000
        self.gone: set[ShardId] = set()

    def read_time_left_ms(self) -> int:
        return self.left_ms

    def lost(self, leases: Collection[Lease]) -> Collection[ShardId]:
        return [lease.shard for lease in leases if lease.shard in self.gone]


@virtual_time
async def test_shards_whose_leases_may_have_lapsed_answer_from_the_loading_table() -> None:
    storage = WithReadTime()
    async with a_pipeline(storage, shared=True) as pipeline:
        storage.left_ms = 0
        await asyncio.sleep(1)
        assert pipeline.fetch().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert pipeline.commit().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert pipeline.heartbeat().error is ErrorCode.NONE
        assert (pipeline.owner.loading_count(), pipeline.owner.stats.lapses) == (2, 1)
        assert pipeline.owner.recovery.problem == (
            "the store does not confirm the leases of the shards"
        )


@virtual_time
async def test_shards_go_on_without_a_load_when_a_later_beat_confirms_their_leases() -> None:
    storage = WithReadTime()
    async with a_pipeline(storage, shared=True) as pipeline:
        shard, parked = pipeline.shard(), pipeline.join()
        shard.deadlines.append(100_000)
        storage.left_ms = 0
        await asyncio.sleep(200)
        assert not parked.answers, "it waits for its rebalance"
        assert not shard.expired_at, "no session ends"
        storage.left_ms = 1_000
        await asyncio.sleep(1)
        assert pipeline.shard() is shard
        assert (pipeline.owner.loading_count(), pipeline.owner.recovery.problem) == (0, "")
        assert (storage.calls.count("load"), storage.calls.count("acquire")) == (1, 1)
        assert [199_000 < stop_ms <= 200_500 for stop_ms in shard.stops_ms] == [True]
        assert shard.expired_at
        pipeline.leave()
        await asyncio.sleep(1)
        assert parked.error is ErrorCode.NONE


@virtual_time
async def test_a_lease_that_was_lost_while_it_lapsed_is_acquired_and_loaded() -> None:
    storage = WithReadTime()
    async with a_pipeline(storage, shared=True) as pipeline:
        kept, parked = pipeline.shard(1), pipeline.join()
        storage.left_ms = 0
        await asyncio.sleep(1)
        storage.gone = {0}
        storage.left_ms = 1_000
        await asyncio.sleep(1)
        assert pipeline.fetch().error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert pipeline.shard(1) is kept
        storage.fence(0)
        await asyncio.sleep(10)
        assert parked.error is ErrorCode.NOT_COORDINATOR
        assert (pipeline.owner.loading_count(), storage.calls.count("load")) == (0, 2)


@virtual_time
async def test_an_append_in_flight_at_a_lapse_is_answered_when_it_is_durable() -> None:
    """The store has checked the life in the same transaction."""
    storage = WithReadTime()
    async with a_pipeline(storage, shared=True) as pipeline:
        gate = storage.hold_next_append()
        commit = pipeline.commit(7)
        await turns(4)
        fetch = pipeline.fetch()
        storage.left_ms = 0
        await asyncio.sleep(1)
        assert not commit.answers
        gate.open()
        await asyncio.sleep(1)
        assert (commit.error, fetch.error) == (ErrorCode.NONE, ErrorCode.NONE)
        assert pipeline.owner.loading_count() == 2


@virtual_time
async def test_an_append_that_fails_during_a_lapse_drops_the_suspended_shards() -> None:
    storage = WithReadTime()
    async with a_pipeline(storage, shared=True, append_timeout_ms=5_000) as pipeline:
        storage.hold_next_append()
        shard, commit, parked = pipeline.shard(), pipeline.commit(7), pipeline.join()
        await turns(4)
        storage.left_ms = 0
        await asyncio.sleep(6)
        answers = (commit.error, parked.error)
        assert answers == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        await asyncio.sleep(60)
        assert pipeline.owner.loading_count() == 2, "a load does not answer for it"
        storage.left_ms = 1_000
        await asyncio.sleep(10)
        assert pipeline.owner.loading_count() == 0
        assert pipeline.shard() is not shard


@virtual_time
async def test_leases_that_are_lost_are_noticed_within_half_a_second() -> None:
    async with a_pipeline(shared=True) as pipeline:
        pipeline.storage.fence(0)
        await asyncio.sleep(0.5)
        assert pipeline.storage.calls.count("acquire") == 2
        assert pipeline.owner.loading_count() == 0


@virtual_time
async def test_a_renewal_that_never_returns_is_given_up() -> None:
    async with a_pipeline(shared=True, append_timeout_ms=1_000) as pipeline:
        pipeline.storage.script("renew", slow(Gate()))
        await asyncio.sleep(0.3)
        pipeline.storage.fence(0)
        await asyncio.sleep(2)
        assert pipeline.storage.calls.count("acquire") == 2


class FirstLook:
    """A clock at its first look in a turn of the loop, which calls ``on_turn``."""

    def __init__(self, clock: Clock, on_turn: Callable[[], None]) -> None:
        self._clock = clock
        self._on_turn = on_turn
        self._is_first = True

    def now(self) -> Now:
        if self._is_first:
            self._is_first = False
            self._on_turn()
        return self._clock.now()


@virtual_time
async def test_shards_lapse_once_if_the_lapse_is_found_at_the_begin_of_a_turn() -> None:
    storage = WithReadTime()
    async with a_pipeline(storage, shared=True) as pipeline:
        leases, recovery = pipeline.owner._leases, pipeline.owner.recovery
        recovery.clock = FirstLook(recovery.clock, leases.check_time)
        storage.left_ms = 0
        leases.check_time()
        assert (pipeline.owner.loading_count(), pipeline.owner.stats.lapses) == (2, 1)


async def test_the_time_is_looked_at_once_in_a_turn_before_its_first_request() -> None:
    looks: list[int] = []
    clock = LoopClock()
    clock.on_turn = lambda: looks.append(1)
    clock.start()
    first = len(looks)
    for _ in range(3):
        clock.now()
    assert len(looks) == first
    await asyncio.sleep(0)
    clock.now()
    clock.now()
    assert len(looks) == first + 1
    clock.stop()


def test_only_a_store_whose_leases_lapse_is_asked_in_each_turn() -> None:
    clock = LoopClock()
    for storage, is_asked in ((FaultyStorage(), False), (WithReadTime(), True)):
        clock.on_turn = None
        config = type("Config", (), {"append_timeout_ms": 1})
        Leases(storage, config, [], {}, None).watch(clock)  # type: ignore[arg-type]
        assert (clock.on_turn is not None) is is_asked
