"""Requests wait at the gate: for a look-up of topics, and for the adoption of their group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.records import OffsetsCommitted
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.adoption import MarkAdoption
from groupkeeper.coordinator.core.requests.offsets import OffsetDelete, OffsetFetch
from groupkeeper.coordinator.gateway.adoption import (
    AGAIN_S,
    FAILED_AGAIN_S,
    LINES_PER_WINDOW,
    LOG_EVERY_S,
    MAX_SETTLED_CHARS,
    Adoption,
    import_request,
)
from groupkeeper.coordinator.gateway.gate import GroupGate
from groupkeeper.coordinator.gateway.observed_topics import LOOK_UP_S, ObservedTopics
from groupkeeper.coordinator.gateway.upstream_groups import UpstreamGroups, UpstreamOffset
from tests.helpers.runtime.coordinator import (
    CLIENT,
    RecordingTicket,
    World,
    a_commit,
    a_coordinator,
)
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage, fail
from tests.helpers.wire.fake_groups import FIND_COORDINATOR, FakeGroups
from tests.helpers.wire.fake_upstream import FakeUpstream

RETENTION_S = 600
LARGE = 1_200
"""So many partitions with some metadata need several commits."""


class Site:
    """A coordinator behind a gate, and the upstream of both."""

    def __init__(
        self, world: World, upstream: FakeUpstream, groups: FakeGroups, *, adopts: bool
    ) -> None:
        topics = world.coordinator.topics
        assert topics is not None
        self.world = world
        self.upstream = upstream
        self.groups = groups
        self.observed = ObservedTopics(topics)
        self.observed.ask = upstream.ask_frame
        self.events: list[Event] = []
        self.adoption = Adoption(
            world.coordinator,
            UpstreamGroups(self.groups),
            self.observed,
            lambda: topics.image,
            self._write,
            world.coordinator.config.max_group_bytes,
            adopts=adopts,
        )
        self.gate = GroupGate(world.coordinator, lambda: topics.image, self.observed, self.adoption)

    def _write(self, events: list[Event]) -> bool:
        self.events += events
        return True

    def send(self, request: Any) -> RecordingTicket:
        ticket = RecordingTicket(request)
        self.world.tickets.append(ticket)
        self.gate.submit(request, ticket)
        return ticket

    async def ask(self, request: Any) -> Any:
        """Ask the coordinator behind the gate."""
        ticket = self.world.send(request)
        await self.world.until(ticket)
        return ticket.result

    async def listed(self) -> list[str]:
        """The groups that are here. A list waits for no adoption."""
        return [group.group_id for group in await self.world.coordinator.list_groups()]

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
    groups: FakeGroups | None = None,
    **config: Any,
) -> AsyncIterator[Site]:
    upstream = upstream or FakeUpstream(orders=3)
    async with a_coordinator(storage, Topics(), max_remembered_groups=10, **config) as world:
        site = Site(world, upstream, groups or FakeGroups(), adopts=adopts)
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
        assert "g" not in await site.listed(), "no part of it is left"


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


async def removed_by_request(site: Site) -> None:
    deleted = site.send(DeleteGroup("g", CLIENT))
    await site.world.until(deleted)
    assert deleted.error is ErrorCode.NONE


async def removed_one_by_one(site: Site) -> None:
    deleted = site.send(OffsetDelete("g", (("orders", (0, 1)),), CLIENT))
    await site.world.until(deleted)
    assert deleted.error is ErrorCode.NONE
    await asyncio.sleep(RETENTION_S)  # the next pass deletes the empty group


async def removed_by_age(site: Site) -> None:
    await asyncio.sleep(2 * RETENTION_S)


@pytest.mark.parametrize("remove", [removed_by_request, removed_one_by_one, removed_by_age])
@virtual_time
async def test_a_group_that_is_gone_here_does_not_come_back_after_a_restart(
    remove: Callable[[Site], Awaitable[None]],
) -> None:
    storage, groups = FaultyStorage(), FakeGroups()
    groups.stored["g"] = {("orders", 0): (41, -1, ""), ("orders", 1): (7, -1, "")}
    config = {
        "offsets_retention_ms": RETENTION_S * 1000,
        "retention_check_interval_ms": RETENTION_S * 500,
    }
    async with a_site(storage=storage, groups=groups, **config) as site:
        assert await site.offsets() == {("orders", 0): 41, ("orders", 1): 7}
        await remove(site)
        assert "g" not in await site.listed()
    async with a_site(storage=storage, groups=groups, **config) as site:
        assert await site.offsets() == {}
        await site.world.until(site.send(a_commit(offset=3)))
        assert await site.offsets() == {("orders", 0): 3}, "a new group of that name"
        assert site.adoption.adopted == 0


@virtual_time
async def test_a_group_that_was_created_and_mirrored_here_does_not_come_back() -> None:
    storage, groups = FaultyStorage(), FakeGroups()
    async with a_site(storage=storage, groups=groups) as site:
        await site.world.until(site.send(a_commit(offset=50)))
        groups.stored["g"] = {("orders", 0): (50, -1, "")}
        await removed_by_request(site)
    async with a_site(storage=storage, groups=groups) as site:
        assert await site.offsets() == {}


def many(count: int) -> dict[tuple[str, int], tuple[int, int, str]]:
    return {("large", partition): (partition + 1, -1, "m" * 200) for partition in range(count)}


def commits_of(storage: FaultyStorage) -> list[OffsetsCommitted]:
    batches = [batch for append in storage.appends for item in append for batch in item.batches]
    records = [record for batch in batches for record in batch.records]
    return [record for record in records if isinstance(record, OffsetsCommitted)]


@virtual_time
async def test_a_large_group_comes_over_in_several_commits() -> None:
    storage, stored = FaultyStorage(), many(LARGE)
    async with a_site(storage=storage, upstream=FakeUpstream(large=LARGE)) as site:
        site.groups.stored["g"] = stored
        assert await site.offsets() == {key: offset for key, (offset, _, _) in stored.items()}
        assert len(commits_of(storage)) > 2
        assert site.adoption.adopted == 1
        assert len(site.events) == 1


@pytest.mark.parametrize("adopts", [True, False])
@virtual_time
async def test_half_of_a_group_is_never_seen_after_a_crash(adopts: bool) -> None:
    storage, groups, upstream = FaultyStorage(), FakeGroups(), FakeUpstream(large=LARGE)
    groups.stored["g"] = stored = many(LARGE)
    async with a_site(storage=storage, groups=groups, upstream=upstream) as site:
        fetched = site.send(OffsetFetch("g", None, False, False))
        while not commits_of(storage):
            await turns(1)
        storage.script("append", fail())
        await site.world.until(fetched)
        assert fetched.error is not ErrorCode.NONE
    del stored["large", 0]
    async with a_site(storage=storage, groups=groups, upstream=upstream, adopts=adopts) as site:
        assert "g" in await site.listed(), "there is nothing to clean up"
        groups.is_down = True
        fetched = site.send(OffsetFetch("g", None, False, False))
        await site.world.until(fetched)
        assert fetched.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        groups.is_down = False
        await asyncio.sleep(AGAIN_S)
        assert await site.offsets() == {key: offset for key, (offset, _, _) in stored.items()}
    async with a_site(storage=storage, groups=groups, upstream=upstream) as site:
        asked = len(groups.asked)
        assert len(await site.offsets()) == LARGE - 1
        assert len(groups.asked) == asked, "its adoption is complete"


@virtual_time
async def test_a_group_that_is_gone_upstream_after_a_crash_is_deleted_here() -> None:
    storage, groups, upstream = FaultyStorage(), FakeGroups(), FakeUpstream(large=LARGE)
    groups.stored["g"] = many(LARGE)
    async with a_site(storage=storage, groups=groups, upstream=upstream) as site:
        await site.ask(MarkAdoption("g", True))
        await site.ask(import_request("g", [UpstreamOffset("large", 0, 1, -1, "")]))
    groups.stored.clear()
    async with a_site(storage=storage, groups=groups, upstream=upstream) as site:
        assert await site.offsets() == {}
        assert "g" not in await site.listed()
        await site.world.until(site.send(a_commit(topics=[("large", "", [(0, 3, -1, "")])])))
        assert await site.offsets() == {("large", 0): 3}


@virtual_time
async def test_a_group_beyond_the_limit_of_a_group_is_refused_and_says_what_to_do() -> None:
    storage, upstream = FaultyStorage(), FakeUpstream(large=LARGE)
    async with a_site(storage=storage, upstream=upstream, max_group_bytes=100_000) as site:
        site.groups.stored["g"] = many(LARGE)
        with capture_logs() as lines:
            for _ in range(2):
                fetched = site.send(OffsetFetch("g", None, False, False))
                await site.world.until(fetched)
                assert fetched.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
                await asyncio.sleep(AGAIN_S)
        assert site.groups.asked.count(FIND_COORDINATOR) == 1, "it is not tried every second"
        assert not commits_of(storage)
        (line,) = [each for each in lines if each["event"] == "group_not_adopted"]
        assert "storage.max_group_bytes is 100000: raise it" in line["reason"]
        site.groups.stored["g"] = many(10)
        await asyncio.sleep(FAILED_AGAIN_S)
        assert len(await site.offsets()) == 10
