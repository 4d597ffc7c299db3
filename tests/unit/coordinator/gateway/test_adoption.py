"""Requests wait at the gate: for a look-up of topics, and for the adoption of their group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.requests.offsets import OffsetFetch
from groupkeeper.coordinator.gateway.adoption import (
    AGAIN_S,
    LINES_PER_WINDOW,
    LOG_EVERY_S,
    MAX_SETTLED_CHARS,
    Adoption,
)
from groupkeeper.coordinator.gateway.gate import GroupGate
from groupkeeper.coordinator.gateway.observed_topics import LOOK_UP_S, ObservedTopics
from groupkeeper.coordinator.gateway.upstream_groups import UpstreamGroups
from tests.helpers.runtime.coordinator import RecordingTicket, World, a_commit, a_coordinator
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage
from tests.helpers.wire.fake_groups import FIND_COORDINATOR, FakeGroups
from tests.helpers.wire.fake_upstream import FakeUpstream


class Site:
    """A coordinator behind a gate, and the upstream of both."""

    def __init__(self, world: World, upstream: FakeUpstream, *, adopts: bool) -> None:
        topics = world.coordinator.topics
        assert topics is not None
        self.world = world
        self.upstream = upstream
        self.groups = FakeGroups()
        self.observed = ObservedTopics(topics)
        self.observed.ask = upstream.ask_frame
        self.events: list[Event] = []
        self.adoption = Adoption(
            world.coordinator,
            UpstreamGroups(self.groups),
            self.observed,
            lambda: topics.image,
            self._write,
        )
        admission = self.adoption if adopts else None
        self.gate = GroupGate(world.coordinator, lambda: topics.image, self.observed, admission)

    def _write(self, events: list[Event]) -> bool:
        self.events += events
        return True

    def send(self, request: Any) -> RecordingTicket:
        ticket = RecordingTicket(request)
        self.world.tickets.append(ticket)
        self.gate.submit(request, ticket)
        return ticket

    async def offsets(self, group_id: str = "g") -> dict[tuple[str, int], int]:
        fetched = self.send(OffsetFetch(group_id, None, False, False))
        await self.world.until(fetched)
        return fetched.offsets()


@asynccontextmanager
async def a_site(
    *,
    adopts: bool = True,
    storage: FaultyStorage | None = None,
    upstream: FakeUpstream | None = None,
) -> AsyncIterator[Site]:
    upstream = upstream or FakeUpstream(orders=3)
    async with a_coordinator(storage, Topics()) as world:
        site = Site(world, upstream, adopts=adopts)
        await site.observed.refresh()
        upstream.asked.clear()
        yield site


def of(topic: str, offset: int = 5) -> Any:
    return a_commit(topics=[(topic, "", [(0, offset, -1, "")])])


@virtual_time
async def test_a_commit_of_a_new_topic_waits_for_one_look_up() -> None:
    async with a_site(adopts=False) as site:
        site.upstream.create("new")
        ticket = site.send(of("new"))
        assert ticket.is_waiting
        await site.world.until(ticket)
        assert ticket.error is ErrorCode.NONE
        assert await site.offsets() == {("new", 0): 5}
        assert site.upstream.asked == [["new"]]


@virtual_time
async def test_commits_of_a_group_keep_their_order_while_one_waits() -> None:
    async with a_site(adopts=False) as site:
        site.upstream.create("new")
        both = a_commit(topics=[("new", "", [(0, 1, -1, "")]), ("orders", "", [(0, 5, -1, "")])])
        tickets = [site.send(both), site.send(of("orders", 6)), site.send(of("orders", 7))]
        await site.world.until(*tickets)
        assert await site.offsets() == {("new", 0): 1, ("orders", 0): 7}


@virtual_time
async def test_other_groups_do_not_wait() -> None:
    async with a_site(adopts=False) as site:
        waiting = site.send(of("absent"))
        other = site.send(a_commit("other"))
        await turns(3)
        assert waiting.is_waiting or other.answers
        await site.world.until(waiting, other)


@virtual_time
async def test_a_topic_that_does_not_exist_costs_one_look_up_a_second() -> None:
    async with a_site(adopts=False) as site:
        for _ in range(3):
            ticket = site.send(of("absent"))
            await site.world.until(ticket)
        assert site.upstream.asked == [["absent"]]
        await asyncio.sleep(LOOK_UP_S)
        await site.world.until(site.send(of("absent")))
        assert site.upstream.asked == [["absent"], ["absent"]]


@virtual_time
async def test_an_unknown_group_comes_over_with_its_first_request() -> None:
    async with a_site() as site:
        site.upstream.create("new")
        site.groups.stored["g"] = {
            ("orders", 0): (41, 3, "meta"),
            ("orders", 2): (7, -1, ""),
            ("new", 1): (9, -1, ""),
        }
        assert await site.offsets() == {("orders", 0): 41, ("orders", 2): 7, ("new", 1): 9}
        asked = len(site.groups.asked)
        await site.world.until(site.send(a_commit(offset=50)))
        assert len(site.groups.asked) == asked
        assert (await site.offsets())["orders", 0] == 50
        assert site.adoption.adopted == 1
        assert [event.action for event in site.events] == ["import"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@virtual_time
async def test_a_group_with_members_upstream_is_refused_until_they_are_gone(protocol: str) -> None:
    async with a_site() as site:
        site.groups.stored["g"] = {("orders", 0): (41, -1, "")}
        site.groups.members["g"] = protocol
        for _ in range(3):
            ticket = site.send(a_commit())
            await site.world.until(ticket)
            assert ticket.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert site.groups.asked.count(FIND_COORDINATOR) == 1  # the refusal is kept for a second
        site.groups.members.clear()
        site.groups.stored["g"] = {("orders", 0): (42, -1, "")}
        await asyncio.sleep(AGAIN_S)
        assert await site.offsets() == {("orders", 0): 42}


@virtual_time
async def test_offsets_of_an_open_transaction_are_waited_for() -> None:
    async with a_site() as site:
        site.groups.stored["g"] = {("orders", 0): (41, -1, "")}
        site.groups.unstable.add("g")
        ticket = site.send(a_commit())
        await site.world.until(ticket)
        assert ticket.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        site.groups.unstable.clear()
        await asyncio.sleep(AGAIN_S)
        assert await site.offsets() == {("orders", 0): 41}


@virtual_time
async def test_while_the_upstream_is_down_only_unknown_groups_wait() -> None:
    async with a_site() as site:
        await site.world.until(site.send(a_commit("ours")))
        site.groups.is_down = True
        ours, unknown = site.send(a_commit("ours", 6)), site.send(a_commit("unknown"))
        await site.world.until(ours, unknown)
        assert ours.error is ErrorCode.NONE
        assert unknown.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


@virtual_time
async def test_a_group_that_is_ours_is_never_adopted_after_a_restart() -> None:
    storage, upstream = FaultyStorage(), FakeUpstream(orders=3)
    async with a_site(storage=storage, upstream=upstream) as site:
        await site.world.until(site.send(a_commit(offset=50)))
    async with a_site(storage=storage, upstream=upstream) as site:
        site.groups.stored["g"] = {("orders", 0): (41, -1, ""), ("orders", 1): (1, -1, "")}
        assert await site.offsets() == {("orders", 0): 50}
        assert site.adoption.adopted == 0


@virtual_time
async def test_an_upstream_without_groups_has_nothing_to_adopt() -> None:
    async with a_site() as site:
        site.groups.lacks.add(FIND_COORDINATOR)
        assert await site.offsets() == {}
        ticket = site.send(a_commit())
        await site.world.until(ticket)
        assert ticket.error is ErrorCode.NONE


@virtual_time
async def test_offsets_of_topics_that_are_gone_stay_behind() -> None:
    async with a_site() as site:
        site.groups.stored["g"] = {("gone", 0): (1, -1, ""), ("orders", 9): (2, -1, "")}
        assert await site.offsets() == {}
        assert site.adoption.adopted == 0


@virtual_time
async def test_a_group_whose_offsets_cannot_be_stored_is_refused_whole() -> None:
    async with a_site() as site:
        site.groups.stored["g"] = {
            ("orders", 0): (1, -1, "x" * 5_000),
            ("orders", 1): (2, -1, ""),
        }
        ticket = site.send(a_commit())
        await site.world.until(ticket)
        assert ticket.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


@virtual_time
async def test_long_group_ids_are_served_and_not_remembered() -> None:
    """A hundred thousand of them would need three gigabytes."""
    kept, long = "k" * MAX_SETTLED_CHARS, "l" * (MAX_SETTLED_CHARS + 1)
    async with a_site() as site:
        for group_id in (kept, long):
            site.groups.stored[group_id] = {("orders", 0): (7, -1, "")}
            assert await site.offsets(group_id) == {("orders", 0): 7}
            assert await site.offsets(group_id) == {("orders", 0): 7}
        assert [site.adoption.is_settled(group_id) for group_id in (kept, long)] == [True, False]
        assert site.adoption.adopted == 2


@virtual_time
async def test_the_refusal_of_a_long_group_id_is_not_remembered() -> None:
    kept, long = "k" * MAX_SETTLED_CHARS, "l" * (MAX_SETTLED_CHARS + 1)
    async with a_site() as site:
        site.groups.members = {kept: "classic", long: "classic"}
        for group_id in (kept, long):
            assert await site.adoption.settle(group_id) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        site.groups.members.clear()
        assert await site.adoption.settle(kept) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await site.adoption.settle(long) is ErrorCode.NONE


@virtual_time
async def test_many_groups_that_are_refused_write_few_lines() -> None:
    async with a_site() as site:
        site.groups.is_down = True
        names = [f"{number}-" + "l" * 1_000 for number in range(LINES_PER_WINDOW + 5)]
        with capture_logs() as logs:
            for name in names:
                assert await site.adoption.settle(name) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            await asyncio.sleep(LOG_EVERY_S)
            assert await site.adoption.settle("g") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        lines = [line for line in logs if line["event"] == "group_not_adopted"]
        logged = [*names[:LINES_PER_WINDOW], "g"]
        assert [line["group"] for line in lines] == [name[:MAX_SETTLED_CHARS] for name in logged]
        assert lines[-1]["left_out"] == 5
