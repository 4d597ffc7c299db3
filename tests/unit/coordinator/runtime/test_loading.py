"""LOADING (docs/design.md#loading): what a loading shard answers, how a load retries, and bugs of
the core.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import SavedGroup
from groupkeeper.coordinator.core.requests.admin import DescribeGroup
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.step import Step
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.runtime.loading import Slicer, load_records
from groupkeeper.storage.base import StorageError, StoreRefused
from tests.helpers.core.fake_shard import FakeShard
from tests.helpers.core.sample_requests import REQUESTS
from tests.helpers.runtime.coordinator import a_config, a_coordinator
from tests.helpers.runtime.pipeline import a_pipeline
from tests.helpers.runtime.virtual_loop import (
    VirtualClock,
    VirtualLoop,
    turns,
    virtual_time,
    virtual_timer,
)
from tests.helpers.storage.faulty_storage import Fault, FaultyStorage, Gate, busy, fail, slow


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=lambda r: type(r).__name__)
@virtual_time
async def test_a_loading_coordinator_answers_at_once_what_the_request_declares(
    request_: Request,
) -> None:
    async with a_coordinator() as world:
        gate = Gate()
        world.storage.script("append", fail())
        world.storage.script("load", slow(gate))
        lost = world.commit("x", 1)
        await world.until(lost)
        answer = world.send(request_)
        assert answer.error.name == type(request_).while_loading.name
        gate.open()
        await world.until_ready()


@virtual_time
async def test_start_returns_when_every_shard_answers() -> None:
    storage = FaultyStorage()
    storage.script("acquire", fail("not yet"), fail("not yet"))
    async with a_coordinator(storage) as world:
        assert world.coordinator.is_ready
        assert world.fetch("g").error is ErrorCode.NONE


@virtual_time
async def test_a_store_that_is_busy_is_opened_as_soon_as_it_is_not() -> None:
    """Found by the soak: a process that was killed while the disk was full could not start before
    there was room.
    """
    storage = FaultyStorage()
    storage.script("open", busy(), busy(), busy())
    async with a_coordinator(storage) as world:
        assert storage.calls.count("open") == 4
        assert world.fetch("g").error is ErrorCode.NONE


@virtual_time
@pytest.mark.parametrize(("call", "words"), [("open", "opened"), ("acquire", "loaded")])
async def test_a_start_that_tries_again_says_why_until_it_works(call: str, words: str) -> None:
    full = busy("/var/store.db: the disk is full; make room")
    storage = FaultyStorage()
    storage.script(call, full, full)
    coordinator = GroupCoordinator(storage, a_config(), clock=VirtualClock())
    start = asyncio.create_task(coordinator.start())
    await asyncio.sleep(0.01)
    assert coordinator.not_ready == (
        f"the store cannot be {words} yet, which is tried again: {full.error}"
    )
    await start
    assert coordinator.not_ready is None
    assert coordinator.start_waits_for == ""
    await coordinator.stop()


@virtual_time
async def test_a_start_that_waits_for_a_busy_store_can_be_given_up() -> None:
    storage = FaultyStorage()
    storage.script("open", *[busy()] * 100)
    coordinator = GroupCoordinator(storage, a_config(), clock=VirtualClock())
    start = asyncio.create_task(coordinator.start())
    await asyncio.sleep(60)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await coordinator.stop()
    assert 10 < storage.calls.count("open") < 20, "every few seconds in the end"


@virtual_time
async def test_a_start_that_waits_writes_three_lines_a_minute_for_each_reason() -> None:
    storage = FaultyStorage()
    storage.script("open", *[busy("full")] * 30, busy("locked"))
    with capture_logs() as logs:
        async with a_coordinator(storage):
            pass
    lines = [(log["error"], log["left_out"]) for log in logs if log["event"] == "open_failed"]
    assert lines[:3] == [("full", 0)] * 3
    assert lines[3][0] == "full"
    assert lines[3][1] > 3
    assert lines[-1] == ("locked", 0)
    assert len(lines) < 15


@virtual_time
async def test_a_store_that_is_away_for_an_hour_writes_few_lines_and_each_new_reason() -> None:
    storage = FaultyStorage()
    async with a_coordinator(storage) as world:
        tries = storage.calls.count("load")
        storage.script("append", fail())
        storage.script("load", *[fail("away")] * 500, *[fail("on fire")] * 200)
        lost = world.commit("x", 1)
        with capture_logs() as lines:
            await world.until(lost)
            await asyncio.sleep(3_600)
        assert storage.calls.count("load") > tries + 600, "it tries every few seconds"
    told = [(line["error"], line["left_out"]) for line in lines if line["event"] == "load_failed"]
    away = [left_out for error, left_out in told if error == "away"]
    assert len(away) < 5 * 60
    assert len(away) + sum(away) <= 500
    assert away[:5] == [0] * 5
    assert "on fire" in [error for error, _ in told]


@virtual_time
async def test_a_store_that_cannot_be_opened_stops_the_start() -> None:
    storage = FaultyStorage()
    storage.script("open", fail("the directory does not exist"))
    with pytest.raises(StorageError, match="does not exist"):
        async with a_coordinator(storage):
            pass


@virtual_time
async def test_a_store_that_must_not_be_used_stops_the_start() -> None:
    storage = FaultyStorage()
    refused = fail()
    refused.error = StoreRefused("in use by another process")
    storage.script("acquire", refused)
    with pytest.raises(StoreRefused, match="in use"):
        async with a_coordinator(storage):
            pass


class FromLater(NamedTuple):
    """A record of a kind that no shard of this version knows."""

    group_id: str


@virtual_time
async def test_a_record_that_no_shard_can_use_stops_the_start() -> None:
    """The record is the same at every attempt. Before, the start retried for ever, and /readyz said
    "loading".
    """
    storage = FaultyStorage()

    async def load(shards: object) -> AsyncIterator[tuple[int, list[Any]]]:
        yield 3, [FromLater("g")]

    storage.load = load  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreRefused, match=r"^shard 3: .*FromLater\(group_id='g'\); a newer"):
        async with a_coordinator(storage):
            pass


@virtual_time
async def test_shards_whose_lease_another_holds_are_waited_for() -> None:
    """Later failures are loaded by the same recovery, not by a second one beside it."""
    storage = FaultyStorage()
    theft = storage.inner.take_over([2, 3], "another process")

    async def give_back() -> None:
        await asyncio.sleep(3)
        storage.inner.give_back(theft.values())

    giving = asyncio.ensure_future(give_back())
    storage.script("append", fail(), fail())
    async with a_coordinator(storage) as world:
        assert asyncio.get_running_loop().time() >= 1_003
        assert world.coordinator.is_ready
        await world.until(world.commit("g", 5))
    await giving


@virtual_time
async def test_after_a_restart_everything_is_there() -> None:
    storage = FaultyStorage()
    async with a_coordinator(storage) as world:
        ids = await world.a_stable_group("g", 3)
        await world.until(world.commit("h", 11))
    async with a_coordinator(storage) as world:
        beats = [world.heartbeat("g", member_id, 1) for member_id in ids]
        assert {b.error for b in beats} == {ErrorCode.NONE}
        assert world.fetch("h").offsets() == {("orders", 0): 11}
        described = await world.coordinator.ask(DescribeGroup("g"))
        assert described.state == "Stable"
        assert {m.member_assignment for m in described.members} == {
            f"part of {m}".encode() for m in ids
        }


@virtual_time
async def test_after_a_restart_sessions_end_though_nobody_asks_for_anything() -> None:
    storage = FaultyStorage()
    async with a_coordinator(storage) as world:
        await world.a_stable_group("g", 2)
    async with a_coordinator(storage) as world:
        await asyncio.sleep(3_600)
        assert len(world.events("member_evicted")) == 2


@virtual_time
async def test_a_load_lets_the_loop_turn_whenever_its_slice_is_used_up() -> None:
    class SlowShard:
        def __init__(self) -> None:
            self.applied = 0

        def apply(self, record: Any) -> None:
            self.applied += 1
            loop.advance(0.001)

    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    shard = SlowShard()

    class Store:
        async def load(self, shards: Any) -> Any:
            yield 0, [object()] * 320

    seen: list[int] = []

    async def look() -> None:
        while shard.applied < 320:
            seen.append(shard.applied)
            await asyncio.sleep(0)

    looking = asyncio.ensure_future(look())
    slicer = Slicer(4.5, virtual_timer)
    await load_records(Store(), [0], {0: shard}, slicer)  # type: ignore[arg-type, dict-item]
    await looking
    steps = [b - a for a, b in zip(seen, [*seen[1:], 320], strict=True)]
    assert max(steps) <= 5


# --- Bugs of the core ----------------------------------------------------------------------------


@virtual_time
async def test_a_bug_is_answered_and_only_its_shard_is_loaded_again() -> None:
    async with a_pipeline() as pipeline:
        kept = pipeline.commit(1, shard_id=0)
        await turns(4)
        parked, elsewhere = pipeline.join(shard_id=0), pipeline.join(shard_id=1)
        broken = pipeline.commit(2, shard_id=0, group_id="bug")
        assert broken.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert parked.error is ErrorCode.NOT_COORDINATOR
        assert elsewhere.is_waiting
        assert pipeline.heartbeat(0).error is ErrorCode.NONE
        assert pipeline.fetch(0).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(0.3)
        assert pipeline.fetch(0).error is ErrorCode.NONE
        assert kept.error is ErrorCode.NONE
        assert len(pipeline.shard(0).applied) == 1
        assert pipeline.storage.calls.count("acquire") == 1
        assert pipeline.owner.stats.bugs == 1


@virtual_time
async def test_the_same_request_twice_closes_its_connection() -> None:
    async with a_pipeline() as pipeline:
        first = pipeline.join(group_id="bug")
        await asyncio.sleep(0.3)
        second = pipeline.join(group_id="bug")
        assert first.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert second.aborted == 1
        assert second.is_waiting


@virtual_time
async def test_a_bug_while_an_append_is_in_flight_answers_what_waits_once() -> None:
    async with a_pipeline() as pipeline:
        gate = pipeline.storage.hold_next_append()
        in_flight, beside = pipeline.commit(1, shard_id=0), pipeline.commit(2, shard_id=1)
        await turns(4)
        gathered = pipeline.commit(3, shard_id=0)
        pipeline.commit(4, shard_id=0, group_id="bug")
        assert in_flight.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert gathered.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        gate.open()
        await asyncio.sleep(1)
        assert beside.error is ErrorCode.NONE
        # What was in flight may have been stored; what had only gathered was not.
        (stored,) = pipeline.shard(0).applied
        assert isinstance(stored, SavedGroup)
        assert stored.offsets["orders"][0].offset == 1


@virtual_time
async def test_a_bug_in_expiry_loads_the_shard_again() -> None:
    async with a_pipeline() as pipeline:
        broken = pipeline.shard(0)

        def expire(now: Any) -> Any:
            raise ZeroDivisionError

        broken.expire = expire  # type: ignore[method-assign]
        broken.deadlines.append(pipeline.clock.now().monotonic_ms + 50)
        pipeline.commit()  # sets the alarm
        await asyncio.sleep(1)
        assert pipeline.shard(0) is not broken
        assert pipeline.owner.stats.bugs == 1


def broken_end_of_a_load(self: FakeShard, now: Now) -> Step:
    raise ZeroDivisionError


@virtual_time
async def test_a_bug_at_the_end_of_the_first_load_stops_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FakeShard, "loaded", broken_end_of_a_load)
    with (
        capture_logs() as lines,
        pytest.raises(StoreRefused, match=r"^shard 0: a bug of groupkeeper .*ZeroDivisionError"),
    ):
        async with asyncio.timeout(60), a_pipeline():
            pass
    (bug,) = [line for line in lines if line["event"] == "core_failed"]
    assert (bug["shard"], bug["input"]) == (0, "the end of a load")


@virtual_time
async def test_a_bug_at_the_end_of_a_later_load_is_reported_until_it_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_pipeline() as pipeline:
        with monkeypatch.context() as broken:
            broken.setattr(FakeShard, "loaded", broken_end_of_a_load)
            pipeline.commit(1, group_id="bug")
            await asyncio.sleep(0.3)
            assert pipeline.owner.stats.bugs >= 2  # it is tried again
            assert pipeline.owner.recovery.refusal.startswith("shard 0: a bug of groupkeeper")
            assert pipeline.fetch(0).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert pipeline.fetch(1).error is ErrorCode.NONE
        await asyncio.sleep(10)
        assert pipeline.owner.recovery.refusal == ""
        assert pipeline.fetch(0).error is ErrorCode.NONE


@virtual_time
async def test_a_bug_while_a_load_is_carried_out_leaves_its_shard_loading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(self: FakeShard) -> int:
        raise ZeroDivisionError

    async with a_pipeline() as pipeline:
        with monkeypatch.context() as broken:
            broken.setattr(FakeShard, "group_count", unreadable)
            pipeline.commit(1, group_id="bug")
            await asyncio.sleep(0.3)
            assert pipeline.fetch(0).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(10)
        assert pipeline.fetch(0).error is ErrorCode.NONE


def ended_by_itself() -> Fault:
    """What a call raises if it waits for a task of the host that somebody cancels."""
    return Fault(stores=False, error=asyncio.CancelledError())


@virtual_time
@pytest.mark.parametrize("call", ["acquire", "load"])
async def test_a_load_that_ends_as_cancelled_by_itself_is_tried_again(call: str) -> None:
    storage = FaultyStorage()
    storage.script(call, ended_by_itself())
    async with a_coordinator(storage) as world:
        assert world.coordinator.stats.loads_failed == 1
        storage.script("append", fail())
        storage.script(call, ended_by_itself())
        lost = world.commit("g", 5)
        await world.until(lost)
        assert lost.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await world.until_ready()
        assert world.coordinator.stats.loads_failed == 2
        stored = world.commit("g", 6)
        await world.until(stored)
        assert stored.error is ErrorCode.NONE


@virtual_time
async def test_a_store_whose_opening_ends_as_cancelled_by_itself_may_be_opened_again() -> None:
    storage = FaultyStorage()
    storage.script("open", ended_by_itself())
    coordinator = GroupCoordinator(storage, a_config(), clock=VirtualClock(), timer=virtual_timer)
    with pytest.raises(StorageError, match="cancelled a call by itself"):
        await coordinator.start()
    await coordinator.start()
    await coordinator.stop()


@virtual_time
async def test_leases_are_renewed_after_a_renewal_that_ended_as_cancelled_by_itself() -> None:
    storage = FaultyStorage()
    async with a_coordinator(storage, renew_interval_ms=2_000):
        storage.script("renew", ended_by_itself())
        await asyncio.sleep(10)
        assert storage.calls.count("renew") > 2
