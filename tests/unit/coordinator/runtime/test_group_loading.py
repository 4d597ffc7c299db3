"""Groups that are loaded when they are first named. Their requests are held, and submitted in
order, exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.cluster.topics import ConfiguredTopic, Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.records import Record
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.membership import Heartbeat
from groupkeeper.coordinator.core.requests.offsets import OffsetFetch
from groupkeeper.coordinator.core.requests.topics import ChangeTopics
from groupkeeper.coordinator.runtime.group_loading import MAX_LOADS
from groupkeeper.storage.backends.host import PersistentOffsetStorage
from groupkeeper.storage.backends.metadata_store import OffsetAndMetadata
from tests.helpers.runtime.coordinator import CLIENT, RecordingTicket, World
from tests.helpers.runtime.coordinator import a_world as a_world_over
from tests.helpers.runtime.virtual_loop import run_virtual, turns, virtual_time
from tests.helpers.storage.dict_store import AsyncDictStore
from tests.helpers.storage.faulty_storage import Gate

TURNS = 30


def a_world(
    store: AsyncDictStore,
    topics: Topics | None = None,
    kind: type[PersistentOffsetStorage] = PersistentOffsetStorage,
    **config: Any,
) -> AbstractAsyncContextManager[World]:
    return a_world_over(kind(store), topics, **config)


def a_store(group_id: str = "g", offset: int = 7) -> AsyncDictStore:
    store = AsyncDictStore()
    store.inner.store(group_id, "orders", 0, OffsetAndMetadata(offset, "kept", 1, -1, 3))
    return store


@virtual_time
async def test_a_group_is_read_when_it_is_first_named_and_never_again() -> None:
    store = a_store()
    async with a_world(store) as world:
        assert store.inner.calls["fetch_all"] == 0
        fetch = world.fetch()
        assert fetch.is_waiting
        await world.until(fetch)
        assert fetch.result.topics == [("orders", "", [(0, 7, 3, "kept", ErrorCode.NONE)])]
        await world.until(world.fetch(), world.commit("g", 9), world.fetch("other"))
        assert store.inner.calls["fetch_all"] == 2


@virtual_time
async def test_only_so_many_groups_are_read_at_once() -> None:
    store = AsyncDictStore()
    gates = [Gate() for _ in range(MAX_LOADS + 10)]
    store.gates += gates
    async with a_world(store) as world:
        tickets = [world.fetch(f"g{number}") for number in range(len(gates))]
        await turns(TURNS)
        assert len(store.gates) == 10
        gates[0].open()
        await turns(TURNS)
        assert len(store.gates) == 9
        for gate in gates:
            gate.open()
        await world.until(*tickets)


@virtual_time
async def test_what_names_the_group_meanwhile_is_answered_in_order() -> None:
    store = a_store()
    gate = Gate()
    store.gates.append(gate)
    async with a_world(store) as world:
        tickets = [world.fetch(), world.commit("g", 8), world.fetch(), world.commit("g", 9)]
        tickets.append(world.fetch())
        await asyncio.sleep(1)
        assert all(ticket.is_waiting for ticket in tickets)
        await world.until(world.commit("another", 1))
        gate.open()
        await world.until(*tickets)
        offsets = [t.offsets()["orders", 0] for t in tickets if isinstance(t.request, OffsetFetch)]
        assert offsets == [7, 8, 9]
        assert [t for t in world.order if t in tickets] == tickets


class AsksAgain(RecordingTicket):
    """Submits the next request of its client from within its answer."""

    def __init__(self, world: World, offset: int) -> None:
        super().__init__()
        self.world = world
        self.offset = offset
        self.next: RecordingTicket | None = None

    def resolve(self, result: Any) -> None:
        super().resolve(result)
        self.next = self.world.commit("g", self.offset)


@virtual_time
async def test_what_an_answer_brings_queues_behind_the_waiting_requests() -> None:
    store = a_store()
    gate = Gate()
    store.gates.append(gate)
    async with a_world(store) as world:
        first = AsksAgain(world, 99)
        world.coordinator.submit(OffsetFetch("g", None, False, False), first)
        commits = [world.commit("g", offset) for offset in (10, 11)]
        gate.open()
        await world.until(*commits)
        assert first.next is not None
        await world.until(first.next)
        fetch = world.fetch()
        await world.until(fetch)
        assert fetch.offsets() == {("orders", 0): 99}


class Raises(RecordingTicket):
    def resolve(self, result: Any) -> None:
        raise ZeroDivisionError("a bug of whoever asked")


@pytest.mark.parametrize("failures", [0, 1])
def test_a_ticket_that_raises_does_not_keep_others_from_their_answers(failures: int) -> None:
    async def scenario() -> None:
        store = a_store()
        store.inner.failures["fetch_all"] = failures
        async with a_world(store) as world:
            for _ in range(2):
                world.coordinator.submit(Heartbeat("g", 1, "m", None, CLIENT), Raises())
            await world.until(world.fetch())
            assert world.coordinator.stats.tickets_failed == 2
            await world.until(world.fetch())

    run_virtual(scenario())


@virtual_time
async def test_a_read_that_fails_is_answered_with_a_retriable_error_and_tried_again() -> None:
    store = a_store()
    store.inner.failures["fetch_all"] = 1
    async with a_world(store) as world:
        refused = [world.fetch(), world.commit("g", 8), world.heartbeat("g")]
        await world.until(*refused)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert [t.error for t in refused] == [loading, loading, ErrorCode.NONE]
        again = world.fetch()
        await world.until(again)
        assert again.offsets() == {("orders", 0): 7}


class CancelledByItself(PersistentOffsetStorage):
    """A storage whose first read waits for a task that somebody else cancels."""

    loads = 0

    async def load_group(self, shard: int, group_id: str) -> Sequence[Record]:
        self.loads += 1
        if self.loads == 1:
            await asyncio.sleep(1)
            raise asyncio.CancelledError
        return await super().load_group(shard, group_id)


@virtual_time
async def test_a_read_that_ends_as_cancelled_is_one_that_fails() -> None:
    async with a_world(a_store(), kind=CancelledByItself) as world:
        await world.until(refused := world.commit("g", 8))
        assert refused.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await world.until(fetch := world.fetch())
        assert fetch.offsets()["orders", 0] == 7


@virtual_time
async def test_a_group_that_cannot_be_used_gets_a_final_answer_and_is_there_once_mended() -> None:
    store = a_store()
    good = store.inner.groups["g"]
    store.inner.groups["g"] = {"orders": {"0": OffsetAndMetadata(7)}}  # type: ignore[dict-item]
    async with a_world(store) as world:
        with capture_logs() as logged:
            refused = [world.fetch(), world.commit("g", 8), world.heartbeat("g")]
            await world.until(*refused)
        assert {ticket.error for ticket in refused} == {ErrorCode.UNKNOWN_SERVER_ERROR}
        assert logged == [
            {
                "event": "group_load_refused",
                "log_level": "error",
                "group": "g",
                "error": "AsyncDictStore.fetch_all returned an unusable value for group 'g' of "
                "topic 'orders', partition '0': partition must be a whole number, not '0'",
            }
        ]
        store.inner.groups["g"] = good
        again = world.fetch()
        await world.until(again)
        assert again.offsets() == {("orders", 0): 7}


@virtual_time
async def test_a_group_that_a_recovery_cannot_use_does_not_hold_up_the_others() -> None:
    store = a_store()
    store.inner.store("other", "orders", 0, OffsetAndMetadata(5))
    async with a_world(store) as world:
        await world.until(world.fetch("g"), world.fetch("other"))
        good = store.inner.groups["g"]
        store.inner.groups["g"] = {"orders": {0: None}}  # type: ignore[dict-item]
        store.inner.failures["store"] = 1
        await world.until(failed := world.commit("other", 6))
        assert failed.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await world.until_ready()
        bad, fine = world.fetch("g"), world.fetch("other")
        await world.until(bad, fine)
        assert bad.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert fine.offsets() == {("orders", 0): 5}
        store.inner.groups["g"] = good
        await world.until(again := world.fetch("g"))
        assert again.offsets() == {("orders", 0): 7}


@virtual_time
async def test_a_read_that_takes_too_long_is_given_up() -> None:
    store = a_store()
    store.gates.append(Gate())
    async with a_world(store, append_timeout_ms=2_000) as world:
        fetch = world.fetch()
        await asyncio.sleep(1.9)
        assert fetch.is_waiting
        await asyncio.sleep(0.2)
        assert fetch.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        again = world.fetch()
        await world.until(again)
        assert again.error is ErrorCode.NONE


@virtual_time
async def test_no_more_is_held_than_may_wait_for_storage() -> None:
    store = a_store()
    gate = Gate()
    store.gates.append(gate)
    async with a_world(store, max_gathered_requests=3) as world:
        held = [world.fetch() for _ in range(3)]
        over = world.fetch()
        assert over.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        gate.open()
        await world.until(*held)
        assert {ticket.error for ticket in held} == {ErrorCode.NONE}


@pytest.mark.parametrize("failures", [0, 1])
def test_what_was_held_makes_room_whatever_became_of_it(failures: int) -> None:
    async def scenario() -> None:
        store = a_store()
        async with a_world(store, max_gathered_requests=3) as world:
            for group_id in ("a", "b", "c"):
                store.inner.failures["fetch_all"] = failures
                held = [world.fetch(group_id) for _ in range(3)]
                assert all(ticket.is_waiting for ticket in held)
                await world.until(*held)

    run_virtual(scenario())


@virtual_time
async def test_a_group_deleted_and_named_again_does_not_come_back() -> None:
    store = a_store()
    async with a_world(store) as world:
        gone = world.send(DeleteGroup("g", CLIENT))
        fetch = world.fetch()
        await world.until(gone, fetch)
        assert gone.error is ErrorCode.NONE
        assert fetch.offsets() == {}
        world.coordinator.router._routed.clear()  # as beyond MAX_ROUTED_GROUPS
        again = world.fetch()
        await world.until(again)
        assert again.offsets() == {}
        assert store.inner.groups == {}


@virtual_time
async def test_a_group_that_the_shard_has_is_not_read_again() -> None:
    store = a_store()
    async with a_world(store) as world:
        await world.until(world.commit("g", 9))
        reads = store.inner.calls["fetch_all"]
        world.coordinator.router._routed.clear()  # as beyond MAX_ROUTED_GROUPS
        fetch = world.fetch()
        await world.until(fetch)
        assert fetch.offsets() == {("orders", 0): 9}
        assert store.inner.calls["fetch_all"] == reads


@virtual_time
async def test_a_delete_that_is_not_written_yet_is_waited_for_before_the_group_is_read() -> None:
    store = a_store()
    async with a_world(store) as world:
        await world.until(world.fetch())
        gone = world.send(DeleteGroup("g", CLIENT))
        world.coordinator.router._routed.clear()
        again = world.fetch()
        await world.until(gone, again)
        assert again.offsets() == {}


@virtual_time
async def test_a_failed_write_loads_what_was_named_with_its_members() -> None:
    store = a_store()
    async with a_world(store) as world:
        await world.until(world.fetch())
        (member,) = await world.a_stable_group("members", 1)
        store.inner.failures["store"] = 1
        lost = world.commit("g", 8)
        await world.until(lost)
        assert lost.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await world.until_ready()
        fetch = world.fetch()
        alive = world.heartbeat("members", member, 1)
        await world.until(fetch, alive)
        assert fetch.offsets() == {("orders", 0): 7}
        assert alive.error is ErrorCode.NONE


async def lose_a_write(world: World, store: AsyncDictStore) -> None:
    """Fail a write of another group: every shard is loaded again."""
    store.inner.failures["store"] = 1
    lost = world.commit("another", 1)
    await world.until(lost)
    assert lost.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await world.until_ready()


@virtual_time
async def test_a_group_that_was_only_read_is_there_after_a_failed_write_of_another() -> None:
    store = a_store()
    async with a_world(store) as world:
        await world.until(world.fetch())
        await lose_a_write(world, store)
        fetch = world.fetch()
        await world.until(fetch)
        assert fetch.offsets() == {("orders", 0): 7}


@virtual_time
async def test_a_group_deleted_and_made_again_in_one_write_is_there_after_a_failed_one() -> None:
    store = a_store()
    async with a_world(store) as world:
        await world.until(world.fetch())
        await world.until(world.send(DeleteGroup("g", CLIENT)), world.commit("g", 9))
        await lose_a_write(world, store)
        fetch = world.fetch()
        await world.until(fetch)
        assert fetch.offsets() == {("orders", 0): 9}


@virtual_time
async def test_a_failed_delete_is_found_out_by_the_load() -> None:
    store = a_store()
    async with a_world(store) as world:
        await world.until(world.fetch())
        store.inner.failures["delete"] = 1
        gone = world.send(DeleteGroup("g", CLIENT))
        await world.until(gone)
        assert gone.error is ErrorCode.NOT_COORDINATOR
        await world.until_ready()
        fetch = world.fetch()
        await world.until(fetch)
        assert fetch.offsets() == {("orders", 0): 7}


@virtual_time
async def test_a_shard_that_is_dropped_while_a_group_of_it_is_read_loses_nothing() -> None:
    store = a_store()
    gate = Gate()
    async with a_world(store, shards=1) as world:
        store.gates.append(gate)
        held = world.fetch()
        await turns(TURNS)
        store.inner.failures["store"] = 1
        named = world.commit("another", 1)
        await world.until(named)
        gate.open()
        await world.until(held)
        assert held.error in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        await world.until_ready()
        fetch = world.fetch()
        await world.until(fetch)
        assert fetch.offsets() == {("orders", 0): 7}


@virtual_time
async def test_stop_sends_elsewhere_who_waits_for_a_group() -> None:
    store = a_store()
    store.gates.append(Gate())
    async with a_world(store) as world:
        held = [world.fetch(), world.commit("g", 8)]
        await turns(TURNS)
        await world.coordinator.stop()
        assert [t.error for t in held] == [ErrorCode.NOT_COORDINATOR] * 2


@virtual_time
async def test_offsets_of_a_topic_that_is_not_configured_stay_in_the_hosts_store() -> None:
    """Such a store keeps no topics, so a missing topic was not deleted."""
    store = a_store()
    store.inner.store("g", "missing", 0, OffsetAndMetadata(3))
    topics = Topics([ConfiguredTopic("orders", 12)])
    async with a_world(store, topics) as world:
        fetch = world.fetch()
        await world.until(fetch)
        assert fetch.offsets() == {("orders", 0): 7, ("missing", 0): 3}
        orders = topics.image.by_name["orders"]
        assert topics.end_offset(orders.topic_id, 0) == 7
        await topics.change_and_wait(ChangeTopics(CLIENT, delete=(("orders", ""),)))
        again = world.fetch()
        await world.until(again)
        await asyncio.sleep(1)
    assert store.inner.groups["g"]["missing"][0].offset == 3
    assert store.inner.groups["g"]["orders"][0].offset == 7
