"""A lane is paused while some of its shards are loaded again. Requests of its other shards that
write wait until then, but no longer than an append may take.
"""

from __future__ import annotations

import asyncio

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from tests.helpers.runtime.coordinator import RecordingTicket
from tests.helpers.runtime.pipeline import Pipeline, a_pipeline
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import Gate, fail, fence, slow

LOST, KEPT = 0, 1
"""Two shards of one lane."""


async def a_load_that_takes_its_time(pipeline: Pipeline) -> Gate:
    """One shard is fenced. Its load waits for the gate."""
    gate = Gate()
    pipeline.storage.script("append", fence(LOST))
    pipeline.storage.script("load", slow(gate))
    lost, kept = pipeline.commit(1, LOST), pipeline.commit(1, KEPT)
    await gate.reached.wait()
    assert [lost.error, kept.error] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
    return gate


async def assert_serves(pipeline: Pipeline) -> None:
    """Wait until every shard is loaded and has stored a commit."""
    while pipeline.owner.loading_count():  # noqa: ASYNC110 - virtual time costs nothing
        await asyncio.sleep(0.05)
    commits = [pipeline.commit(9, shard_id) for shard_id in (LOST, KEPT)]
    await turns(8)
    assert [commit.error for commit in commits] == [ErrorCode.NONE] * 2


@virtual_time
async def test_what_waits_for_a_load_of_others_is_told_in_time() -> None:
    async with a_pipeline() as pipeline:
        gate = await a_load_that_takes_its_time(pipeline)
        parked = pipeline.join(KEPT)
        await asyncio.sleep(60)
        waiting = [pipeline.commit(2, KEPT), pipeline.fetch(KEPT)]
        await asyncio.sleep(4.9)
        assert all(ticket.is_waiting for ticket in (*waiting, parked))
        await asyncio.sleep(0.2)
        errors = [ticket.error for ticket in (*waiting, parked)]
        away = ErrorCode.NOT_COORDINATOR
        assert errors == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, away, away]
        gate.open()
        await assert_serves(pipeline)


@virtual_time
async def test_and_the_next_ones_are_told_at_once_for_as_long_as_the_load_takes() -> None:
    async with a_pipeline() as pipeline:
        gate = await a_load_that_takes_its_time(pipeline)
        pipeline.commit(2, KEPT)
        for _ in range(10):
            await asyncio.sleep(6)
            assert pipeline.commit(3, KEPT).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert pipeline.heartbeat(KEPT).error is ErrorCode.NONE
        gate.open()
        await assert_serves(pipeline)


@virtual_time
async def test_what_comes_behind_it_does_not_make_the_first_one_wait_longer() -> None:
    async with a_pipeline() as pipeline:
        gate = await a_load_that_takes_its_time(pipeline)
        commits = []
        for offset in range(2, 7):
            commits.append(pipeline.commit(offset, KEPT))
            await asyncio.sleep(1)
        await asyncio.sleep(0.1)
        assert {commit.error for commit in commits} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        gate.open()
        await assert_serves(pipeline)


@virtual_time
async def test_what_was_not_given_to_the_store_costs_no_lease_and_no_append() -> None:
    """With one epoch for all shards, a new one for some of them would fence the others."""
    async with a_pipeline() as pipeline:
        gate = await a_load_that_takes_its_time(pipeline)
        lease = pipeline.owner.slots[KEPT].lease
        pipeline.commit(2, KEPT)
        await asyncio.sleep(6)
        gate.open()
        await assert_serves(pipeline)
        assert pipeline.owner.slots[KEPT].lease is lease
        assert pipeline.owner.stats.appends_failed == 1  # the one that was fenced
        appends = range(len(pipeline.storage.appends))
        assert [pipeline.offsets_in_append(n) for n in appends] == [[1, 1], [], [9, 9]]


@virtual_time
async def test_a_lane_that_was_full_is_not_when_what_waited_is_dropped() -> None:
    async with a_pipeline(max_gathered_requests=2) as pipeline:
        (lane,) = pipeline.owner.lanes
        await lane.pause()
        commits = [pipeline.commit(offset, KEPT) for offset in (1, 2, 3)]
        assert commits[2].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(5.1)
        assert {commit.error for commit in commits[:2]} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        lane.end_pause()
        await assert_serves(pipeline)


@virtual_time
async def test_a_load_that_ends_in_time_costs_the_others_nothing() -> None:
    async with a_pipeline() as pipeline:
        gate = await a_load_that_takes_its_time(pipeline)
        shard = pipeline.shard(KEPT)
        await asyncio.sleep(60)
        commit = pipeline.commit(2, KEPT)
        await asyncio.sleep(4.9)
        append = pipeline.storage.hold_next_append()
        gate.open()
        await asyncio.sleep(4.9)  # and its append has all of its own time
        append.open()
        await turns(4)
        assert commit.error is ErrorCode.NONE
        await asyncio.sleep(60)  # what is written long since drops nothing later
        assert pipeline.shard(KEPT) is shard


@virtual_time
async def test_the_append_that_came_before_counts() -> None:
    """A request waits for two appends at most, with or without a load between them."""
    async with a_pipeline() as pipeline:
        load = Gate()
        pipeline.storage.script("load", slow(load))
        append = pipeline.storage.hold_next_append()
        in_flight = pipeline.commit(1, KEPT)
        await turns(4)
        pipeline.commit(1, LOST, group_id="bug")
        await asyncio.sleep(1)  # the load waits for the append, and what comes now for both
        gathered = pipeline.commit(2, KEPT)
        await asyncio.sleep(2)
        append.open()
        await asyncio.sleep(1.9)
        assert [in_flight.error, gathered.is_waiting] == [ErrorCode.NONE, True]
        await asyncio.sleep(0.2)
        assert gathered.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        load.open()
        await assert_serves(pipeline)


@virtual_time
async def test_time_that_the_process_stands_still_does_not_count() -> None:
    async with a_pipeline() as pipeline:
        gate = await a_load_that_takes_its_time(pipeline)
        commit = pipeline.commit(2, KEPT)
        await asyncio.sleep(1)
        pipeline.clock.monotonic_offset_ms -= 3_000
        await asyncio.sleep(6.9)
        assert commit.is_waiting
        await asyncio.sleep(0.2)
        assert commit.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        gate.open()
        await assert_serves(pipeline)


@virtual_time
async def test_an_event_that_nobody_waits_for_drops_nothing() -> None:
    async with a_pipeline() as pipeline:
        gate = await a_load_that_takes_its_time(pipeline)
        shard = pipeline.shard(KEPT)
        assert pipeline.heartbeat(KEPT, "fenced").error is ErrorCode.FENCED_INSTANCE_ID
        await asyncio.sleep(60)
        gate.open()
        await turns(8)
        assert pipeline.events_in_append(1) == ["MemberFenced"]
        assert pipeline.shard(KEPT) is shard


@virtual_time
async def test_a_commit_may_go_between_two_loads_that_fail() -> None:
    async with a_pipeline(retry_max_ms=1_000) as pipeline:
        pipeline.storage.script("append", fence(LOST))
        pipeline.storage.script("load", *[fail("down")] * 20)
        pipeline.commit(1, LOST)
        pipeline.commit(1, KEPT)
        await asyncio.sleep(0.01)
        for offset in range(2, 8):
            commit = pipeline.commit(offset, KEPT)
            await asyncio.sleep(1.1)
            assert commit.error is ErrorCode.NONE
        assert pipeline.owner.loading_count() == 1
        await assert_serves(pipeline)


async def held_before_it_starts(pipeline: Pipeline) -> RecordingTicket:
    """A commit whose append was about to start in the turn in which the lane was held."""
    commit = pipeline.commit(1, KEPT)
    await pipeline.owner.lanes[0].pause()
    return commit


@virtual_time
async def test_an_append_that_was_about_to_start_waits_no_longer_than_others() -> None:
    async with a_pipeline() as pipeline:
        commit = await held_before_it_starts(pipeline)
        await asyncio.sleep(4.9)
        assert commit.is_waiting
        await asyncio.sleep(0.2)
        assert commit.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        pipeline.owner.lanes[0].end_pause()
        await assert_serves(pipeline)


@pytest.mark.parametrize("has_request", [True, False])
@virtual_time
async def test_who_folds_is_told_too_when_what_gathers_is_dropped(has_request: bool) -> None:
    async with a_pipeline() as pipeline:
        (lane,) = pipeline.owner.lanes
        folding = asyncio.ensure_future(lane.fold())
        holding = asyncio.ensure_future(lane.pause())  # before the fold has started
        await turns(4)
        assert holding.done()
        if has_request:
            pipeline.commit(2, KEPT)
            await asyncio.sleep(5.1)
        else:
            for shard_id in (LOST, KEPT):
                pipeline.commit(2, shard_id, group_id="bug")
        await turns(2)
        assert folding.done()
        lane.end_pause()
        await assert_serves(pipeline)
