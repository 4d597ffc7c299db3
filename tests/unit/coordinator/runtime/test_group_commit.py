"""Group commit and the order of replies (docs/design.md#durable-first, #group-commit), over shards
without logic.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from groupkeeper.coordinator.core.declarations import Result
from groupkeeper.coordinator.core.errors import ErrorCode
from tests.helpers.runtime.coordinator import RecordingTicket, a_commit
from tests.helpers.runtime.pipeline import a_pipeline
from tests.helpers.runtime.virtual_loop import VirtualLoop, run_virtual, turns, virtual_time
from tests.helpers.storage.faulty_storage import Gate, fail, slow


@virtual_time
async def test_a_request_with_nothing_to_wait_for_is_answered_before_submit_returns() -> None:
    async with a_pipeline() as pipeline:
        assert pipeline.heartbeat().error is ErrorCode.NONE
        assert pipeline.fetch().error is ErrorCode.NONE
        assert pipeline.storage.appends == []


@virtual_time
async def test_nothing_is_answered_before_it_is_durable() -> None:
    async with a_pipeline() as pipeline:
        gate = pipeline.storage.hold_next_append()
        commit = pipeline.commit()
        await asyncio.sleep(1)
        assert commit.is_waiting
        gate.open()
        await turns(4)
        assert commit.error is ErrorCode.NONE


@virtual_time
async def test_all_requests_of_one_turn_share_an_append() -> None:
    async with a_pipeline() as pipeline:
        commits = [pipeline.commit(n, n % 2) for n in range(10)]
        assert pipeline.storage.appends == []
        await turns(4)
        assert [c.error for c in commits] == [ErrorCode.NONE] * 10
        assert len(pipeline.storage.appends) == 1


@virtual_time
async def test_while_one_append_is_in_flight_the_next_gathers() -> None:
    async with a_pipeline() as pipeline:
        gate = pipeline.storage.hold_next_append()
        first = pipeline.commit(1)
        await turns(4)
        later = [pipeline.commit(n) for n in (2, 3, 4)]
        await asyncio.sleep(1)
        assert len(pipeline.storage.appends) == 1
        gate.open()
        await turns(6)
        assert pipeline.offsets_in_append(0) == [1]
        assert pipeline.offsets_in_append(1) == [2, 3, 4]
        assert pipeline.order == [first, *later]
        assert pipeline.storage.most_in_flight == 1


@virtual_time
async def test_a_read_waits_for_what_its_shard_wrote_before_and_for_nothing_else() -> None:
    async with a_pipeline() as pipeline:
        gate = pipeline.storage.hold_next_append()
        commit = pipeline.commit(shard_id=0)
        behind, beside = pipeline.fetch(0), pipeline.fetch(1)
        assert behind.is_waiting
        assert beside.error is ErrorCode.NONE
        await turns(4)
        gate.open()
        await turns(4)
        assert pipeline.order == [beside, commit, behind]


@virtual_time
async def test_a_read_behind_an_append_in_flight_does_not_wait_for_the_next_one() -> None:
    async with a_pipeline() as pipeline:
        first, second = Gate(), Gate()
        pipeline.storage.script("append", slow(first), slow(second))
        pipeline.commit(1, shard_id=0)
        await turns(4)
        read = pipeline.fetch(0)
        pipeline.commit(2, shard_id=1)
        behind_both = [pipeline.commit(3, shard_id=0), pipeline.fetch(0)]
        first.open()
        await turns(4)
        assert read.error is ErrorCode.NONE
        assert [t.is_waiting for t in behind_both] == [True, True]
        second.open()
        await turns(4)
        assert pipeline.order[-2:] == behind_both


@virtual_time
async def test_a_read_that_comes_after_an_append_waits_for_the_next_one_of_its_shard() -> None:
    async with a_pipeline() as pipeline:
        first, second = Gate(), Gate()
        pipeline.storage.script("append", slow(first), slow(second))
        pipeline.commit(1)
        await turns(4)
        in_flight = pipeline.commit(2)
        first.open()
        await turns(6)
        read = pipeline.fetch()
        assert read.is_waiting
        second.open()
        await turns(4)
        assert pipeline.order[-2:] == [in_flight, read]


@virtual_time
async def test_a_heartbeat_waits_for_nothing_but_its_refusal_does() -> None:
    async with a_pipeline() as pipeline:
        gate = pipeline.storage.hold_next_append()
        pipeline.commit()
        alive = pipeline.heartbeat()
        unknown, fenced = (pipeline.heartbeat(member_id=who) for who in ("unknown", "fenced"))
        assert alive.error is ErrorCode.NONE
        assert unknown.is_waiting
        assert fenced.is_waiting
        await turns(4)
        gate.open()
        await turns(4)
        assert unknown.error is ErrorCode.UNKNOWN_MEMBER_ID
        assert fenced.error is ErrorCode.FENCED_INSTANCE_ID


@virtual_time
async def test_a_ticket_may_submit_the_next_request_from_within_its_answer() -> None:
    """Submits the next request from within an answer, like a connection that goes on behind a
    parked request.
    """

    async with a_pipeline() as pipeline:

        class Chain(RecordingTicket):
            def resolve(self, result: Result) -> None:
                super().resolve(result)
                follow_ups.append(pipeline.fetch())

        follow_ups: list[RecordingTicket] = []
        chain = Chain(a_commit())
        chain.order = pipeline.order
        pipeline.owner.slots[0].submit(a_commit(), chain, pipeline.clock.now())
        last = pipeline.commit(6)
        await turns(4)
        assert pipeline.order == [chain, last, *follow_ups]


@virtual_time
async def test_replies_are_released_in_portions_so_that_the_loop_turns() -> None:
    async with a_pipeline(shards=range(20)) as pipeline:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)

        class Slow(RecordingTicket):
            def resolve(self, result: Result) -> None:
                super().resolve(result)
                loop.advance(0.002)

        tickets = [Slow() for _ in range(20)]
        for number, ticket in enumerate(tickets):
            pipeline.owner.slots[number].submit(a_commit(), ticket, pipeline.clock.now())
        portions = set()
        while any(ticket.is_waiting for ticket in tickets):
            await turns(1)
            portions.add(sum(not ticket.is_waiting for ticket in tickets))
        assert max(b - a for a, b in pairwise(sorted(portions))) <= 3


@virtual_time
async def test_an_append_is_not_abandoned_while_its_replies_are_released() -> None:
    """Not even if the process stood still before, so that the time limit was set again."""
    async with a_pipeline(shards=range(20)) as pipeline:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)

        class Slow(RecordingTicket):
            def resolve(self, result: Result) -> None:
                super().resolve(result)
                loop.advance(1)

        gate = pipeline.storage.hold_next_append()
        tickets = [Slow() for _ in range(20)]
        for number, ticket in enumerate(tickets):
            pipeline.owner.slots[number].submit(a_commit(), ticket, pipeline.clock.now())
        await turns(4)
        pipeline.clock.monotonic_offset_ms -= 60_000
        loop.advance(60)
        await turns(4)
        gate.open()
        await turns(100)
        assert {ticket.error for ticket in tickets} == {ErrorCode.NONE}
        assert pipeline.owner.recovery.stats.appends_failed == 0


@virtual_time
async def test_a_ticket_that_raises_costs_nobody_else_an_answer() -> None:
    async with a_pipeline() as pipeline:

        class Broken(RecordingTicket):
            def resolve(self, result: Result) -> None:
                raise ConnectionResetError

        pipeline.owner.slots[0].submit(a_commit(), Broken(), pipeline.clock.now())
        commit = pipeline.commit(6)
        await turns(4)
        assert commit.error is ErrorCode.NONE
        assert pipeline.owner.stats.tickets_failed == 1


@virtual_time
async def test_one_step_of_many_replies_is_released_in_their_order() -> None:
    async with a_pipeline() as pipeline:
        joins = [pipeline.join() for _ in range(3)]
        leave = pipeline.leave()
        assert pipeline.order == [*joins, leave]


@virtual_time
async def test_events_without_a_record_ride_alone_after_50_ms_and_hold_no_reply() -> None:
    async with a_pipeline() as pipeline:
        fenced = pipeline.heartbeat(member_id="fenced")
        assert fenced.error is ErrorCode.FENCED_INSTANCE_ID
        await asyncio.sleep(0.049)
        assert pipeline.storage.appends == []
        await asyncio.sleep(0.002)
        assert pipeline.events_in_append(0) == ["MemberFenced"]


@virtual_time
async def test_events_ride_with_the_next_append_before_what_came_after_them() -> None:
    async with a_pipeline() as pipeline:
        pipeline.heartbeat(member_id="fenced")
        pipeline.commit()
        await turns(4)
        (item,) = pipeline.storage.appends[0]
        assert [(len(b.records), len(b.events)) for b in item.batches] == [(0, 1), (1, 0)]
        await asyncio.sleep(1)
        assert len(pipeline.storage.appends) == 1


@virtual_time
async def test_events_ride_behind_the_append_in_flight() -> None:
    async with a_pipeline() as pipeline:
        gate = pipeline.storage.hold_next_append()
        pipeline.commit()
        await turns(4)
        pipeline.heartbeat(member_id="fenced", shard_id=1)
        await asyncio.sleep(1)
        gate.open()
        await turns(6)
        assert pipeline.events_in_append(1) == ["MemberFenced"]


@virtual_time
async def test_repeats_of_a_refusal_become_one_event_a_window() -> None:
    async with a_pipeline() as pipeline:
        for _ in range(30):
            pipeline.heartbeat(member_id="fenced")
            await asyncio.sleep(0.5)
        await asyncio.sleep(20)
        counts = [
            event["count"]
            for event in pipeline.storage.inner.events()
            if event["kind"] == "member_fenced"
        ]
        assert counts[0] == 1
        assert sum(counts) == 30
        assert len(counts) == 3


@virtual_time
async def test_when_too_much_waits_what_would_write_is_refused_and_heartbeats_go_on() -> None:
    async with a_pipeline(max_gathered_requests=3) as pipeline:
        gate = pipeline.storage.hold_next_append()
        pipeline.commit(1)
        await turns(4)
        gathered = [pipeline.commit(n) for n in (2, 3, 4)]
        refused = pipeline.commit(5)
        assert refused.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert pipeline.fetch().error is ErrorCode.NOT_COORDINATOR
        assert pipeline.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert pipeline.heartbeat().error is ErrorCode.NONE
        gate.open()
        await turns(8)
        assert {t.error for t in gathered} == {ErrorCode.NONE}
        again = pipeline.commit(5)
        await turns(4)
        assert again.error is ErrorCode.NONE
        assert pipeline.offsets_in_append(1) == [2, 3, 4]


@virtual_time
async def test_what_waits_is_bounded_over_all_shards_that_are_written_together() -> None:
    async with a_pipeline(shards=range(4), max_gathered_requests=3) as pipeline:
        gate = pipeline.storage.hold_next_append()
        pipeline.commit(1)
        await turns(4)
        gathered = [pipeline.commit(2, shard_id) for shard_id in (0, 1, 2)]
        assert [commit.is_waiting for commit in gathered] == [True, True, True]
        assert pipeline.commit(2, shard_id=3).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        gate.open()
        await turns(8)


@virtual_time
async def test_what_waits_is_bounded_by_its_size_too() -> None:
    async with a_pipeline(max_gathered_bytes=5_000) as pipeline:
        gate = pipeline.storage.hold_next_append()
        pipeline.commit(1)
        await turns(4)
        big = [("orders", "", [(0, 2, -1, "x" * 6_000)])]
        large = pipeline.send(a_commit("g", topics=big))
        assert pipeline.commit(3).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        gate.open()
        await turns(8)
        assert large.error is ErrorCode.NONE


@pytest.mark.parametrize(("room_bytes", "is_refused"), [(0, True), (1, False)])
@virtual_time
async def test_what_waits_may_be_less_than_the_bound_and_not_as_much(
    room_bytes: int, is_refused: bool
) -> None:
    async with a_pipeline() as pipeline:
        pipeline.commit(1)
        await turns(4)
        ((item,),) = pipeline.storage.appends
        size_bytes = len(repr(item.batches[0].records[0]))  # as the fake shard counts it
    async with a_pipeline(max_gathered_bytes=size_bytes + room_bytes) as pipeline:
        gate = pipeline.storage.hold_next_append()
        pipeline.commit(1)
        await turns(4)
        pipeline.commit(2)
        assert pipeline.commit(3).is_waiting is not is_refused
        gate.open()
        await turns(8)


@virtual_time
async def test_who_stops_waiting_for_a_lane_holds_it_no_longer() -> None:
    async with a_pipeline() as pipeline:
        (lane,) = pipeline.owner.lanes
        gate = pipeline.storage.hold_next_append()
        first = pipeline.commit(1)
        await turns(4)
        waits = asyncio.ensure_future(lane.pause())
        await turns(2)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        second = pipeline.commit(2)
        gate.open()
        await turns(8)
        assert [first.error, second.error] == [ErrorCode.NONE, ErrorCode.NONE]


@virtual_time
async def test_readers_behind_a_slow_append_are_bounded() -> None:
    async with a_pipeline(max_gathered_requests=3) as pipeline:
        gate = pipeline.storage.hold_next_append()
        pipeline.commit(1)
        await turns(4)
        fetches = [pipeline.fetch() for _ in range(4)]
        assert [f.is_waiting for f in fetches] == [True, True, False, False]
        gate.open()
        await turns(4)


@virtual_time
async def test_a_lane_that_the_loop_cancels_ends_so_and_its_append_counts_as_failed() -> None:
    """``asyncio.run`` does this at its end with what a host did not stop."""
    async with a_pipeline() as pipeline:
        (lane,) = pipeline.owner.lanes
        pipeline.storage.hold_next_append()
        commit = pipeline.commit(1)
        await turns(4)
        task = lane._task
        assert task is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert commit.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_who_flushes_a_lane_that_is_held_waits_and_does_not_turn_the_loop() -> None:
    async def flush_while_paused() -> None:
        async with a_pipeline() as pipeline:
            (lane,) = pipeline.owner.lanes
            await lane.pause()
            commit = pipeline.commit(1)
            flushing = asyncio.ensure_future(lane.flush())
            await asyncio.sleep(1)
            assert (flushing.done(), commit.is_waiting) == (False, True)
            lane.end_pause()
            await flushing
            assert commit.error is ErrorCode.NONE

    run_virtual(flush_while_paused(), most_turns=1_000)


@virtual_time
async def test_a_store_that_writes_a_shard_at_a_time_has_a_lane_a_shard() -> None:
    async with a_pipeline(one_lane=False) as pipeline:
        gate = pipeline.storage.hold_next_append()
        held = pipeline.commit(1, shard_id=0)
        await turns(4)
        free = pipeline.commit(2, shard_id=1)
        await turns(4)
        assert free.error is ErrorCode.NONE
        assert held.is_waiting
        gate.open()
        await turns(4)


@virtual_time
async def test_a_failed_append_drops_its_own_lane_alone() -> None:
    async with a_pipeline(one_lane=False) as pipeline:
        pipeline.storage.script("append", fail())
        lost = pipeline.commit(1, shard_id=0)
        await turns(2)
        parked = pipeline.join(shard_id=1)
        await turns(6)
        assert lost.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert parked.is_waiting


@virtual_time
async def test_a_failure_answers_what_gathers_behind_it_too() -> None:
    async with a_pipeline() as pipeline:
        gate = Gate()
        pipeline.storage.script("append", slow(gate))
        first = pipeline.commit(1)
        await turns(4)
        gathered, read, parked = pipeline.commit(2), pipeline.fetch(), pipeline.join(1)
        await asyncio.sleep(5.1)  # the gate never opens: the append has timed out
        loading, away = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR
        errors = [ticket.error for ticket in (first, gathered, read, parked)]
        assert errors == [loading, loading, away, away]


@virtual_time
async def test_the_time_that_a_process_stands_still_does_not_count_against_an_append() -> None:
    async with a_pipeline() as pipeline:
        gate = pipeline.storage.hold_next_append()
        commit = pipeline.commit()
        await turns(4)
        loop = asyncio.get_running_loop()
        pipeline.clock.monotonic_offset_ms -= 60_000
        loop.advance(60)  # type: ignore[attr-defined]
        await turns(4)
        assert commit.is_waiting
        gate.open()
        await turns(4)
        assert commit.error is ErrorCode.NONE


@virtual_time
async def test_stop_refuses_what_is_parked_and_makes_durable_what_waits() -> None:
    async with a_pipeline() as pipeline:
        gate = pipeline.storage.hold_next_append()
        parked, commit = pipeline.join(), pipeline.commit(shard_id=1)
        await turns(4)
        read = pipeline.fetch(shard_id=1)
        pipeline.owner.drain()
        assert parked.error is ErrorCode.NOT_COORDINATOR
        assert commit.is_waiting
        finishing = asyncio.ensure_future(pipeline.owner.finish(10_000))
        await asyncio.sleep(1)
        gate.open()
        await finishing
        assert commit.error is ErrorCode.NONE
        assert read.error is ErrorCode.NONE


@virtual_time
async def test_stop_leaves_a_join_whose_answer_waits_for_the_disk_to_that_answer() -> None:
    async with a_pipeline() as pipeline:
        gate = pipeline.storage.hold_next_append()
        pipeline.commit(1)
        await turns(4)
        in_flight = pipeline.join()
        pipeline.leave()  # ends the join, behind the commit in flight
        pipeline.commit(2)
        gathered = pipeline.join()
        pipeline.leave()
        parked = pipeline.join()
        pipeline.owner.drain()
        assert parked.error is ErrorCode.NOT_COORDINATOR
        assert in_flight.is_waiting
        assert gathered.is_waiting
        finishing = asyncio.ensure_future(pipeline.owner.finish(10_000))
        gate.open()
        await finishing
        assert in_flight.error is ErrorCode.NONE
        assert gathered.error is ErrorCode.NONE
        assert pipeline.owner.stats.tickets_failed == 0


@virtual_time
async def test_stop_while_a_load_waits_for_an_append_still_flushes() -> None:
    async with a_pipeline() as pipeline:
        gate = pipeline.storage.hold_next_append()
        in_flight = pipeline.commit(1, shard_id=1)
        await turns(4)
        pipeline.commit(2, shard_id=0, group_id="bug")
        await asyncio.sleep(0.2)  # the load of shard 0 holds the lane
        gathered = pipeline.commit(3, shard_id=1)
        pipeline.owner.drain()
        finishing = asyncio.ensure_future(pipeline.owner.finish(10_000))
        await asyncio.sleep(1)
        gate.open()
        await finishing
        assert in_flight.error is ErrorCode.NONE
        assert gathered.error is ErrorCode.NONE


@virtual_time
async def test_stop_answers_everything_even_when_storage_does_not() -> None:
    async with a_pipeline() as pipeline:
        pipeline.storage.script("append", slow(Gate()))
        commit = pipeline.commit()
        await turns(4)
        gathered = pipeline.commit(6)
        pipeline.owner.drain()
        await pipeline.owner.finish(1_000)
        assert commit.error is ErrorCode.NOT_COORDINATOR
        assert gathered.error is ErrorCode.NOT_COORDINATOR
