"""Ports of listeners on their way: durable first, then known, then answered."""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.topics import ChangeUpstream
from tests.helpers.runtime.coordinator import CLIENT, RecordingTicket, World, a_coordinator
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage, fail


def assign(world: World, *ports: tuple[int, int]) -> RecordingTicket:
    return world.send(ChangeUpstream(CLIENT, ports))


def known(world: World) -> dict[int, int]:
    return world.coordinator.upstream_record.ports


@virtual_time
async def test_a_port_is_known_when_it_is_durable_and_not_before() -> None:
    async with a_coordinator() as world:
        gate = world.storage.hold_next_append()
        assigned = assign(world, (1, 9100), (2, 9101))
        await turns(5)
        assert assigned.is_waiting
        assert known(world) == {}
        gate.open()
        await world.until(assigned)
        assert assigned.error is ErrorCode.NONE
        assert known(world) == {1: 9100, 2: 9101}


@virtual_time
async def test_ports_are_there_after_a_restart_and_after_a_load() -> None:
    storage = FaultyStorage()
    async with a_coordinator(storage) as world:
        await world.until(assign(world, (1, 9100), (2, 9101), (3, 9102)))
        await world.until(assign(world, (2, 0), (3, 9109)))
    async with a_coordinator(storage) as world:
        assert known(world) == {1: 9100, 3: 9109}
        world.storage.script("append", fail())
        await world.until(world.commit("x", 1))
        await world.until_ready()
        assert known(world) == {1: 9100, 3: 9109}


@virtual_time
async def test_the_cluster_id_of_the_upstream_is_stored_once() -> None:
    storage = FaultyStorage()
    async with a_coordinator(storage) as world:
        assert world.coordinator.upstream_record.cluster_id == ""
        await world.until(world.send(ChangeUpstream(CLIENT, cluster_id="first")))
        await world.until(world.send(ChangeUpstream(CLIENT, cluster_id="second")))
        assert world.coordinator.upstream_record.cluster_id == "first"
    async with a_coordinator(storage) as world:
        assert world.coordinator.upstream_record.cluster_id == "first"


@virtual_time
async def test_a_port_that_is_assigned_already_is_not_written_again() -> None:
    async with a_coordinator() as world:
        await world.until(assign(world, (1, 9100)))
        appends = sum(world.coordinator.stats.append_requests.counts)
        again = assign(world, (1, 9100), (2, 0))
        await world.until(again)
        assert again.error is ErrorCode.NONE
        assert sum(world.coordinator.stats.append_requests.counts) == appends


@virtual_time
async def test_a_port_whose_write_failed_is_to_be_asked_for_again() -> None:
    async with a_coordinator() as world:
        world.storage.script("append", fail())
        lost = assign(world, (1, 9100))
        await world.until(lost)
        assert lost.error is ErrorCode.NOT_CONTROLLER
        await world.until_ready()
        await world.until(assign(world, (1, 9100)))
        assert known(world) == {1: 9100}
