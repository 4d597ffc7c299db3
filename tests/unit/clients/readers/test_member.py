"""A member whose Consul fails: it ends, and says why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from groupkeeper.clients.readers.consul_group import ConsulGroup
from groupkeeper.clients.readers.errors import PartitionLost, SessionEnded
from groupkeeper.clients.readers.group_keys import GroupKeys
from groupkeeper.clients.readers.member import GroupMember, ReaderPlan
from groupkeeper.storage.connections.consul import ConsulClient, ConsulView
from groupkeeper.storage.connections.consul_errors import ConsulUnavailable
from groupkeeper.storage.connections.consul_session import ConsulSession
from tests.helpers.runtime.virtual_loop import virtual_time

PLAN = ReaderPlan("localhost")
LOCKED_AT = 5
"""The index of every lock."""


class FakeConsul:
    """Knows an empty group; then it fails as it is told."""

    def __init__(self) -> None:
        self.is_away = False
        self.takes_s = 0.0
        self.deleted: list[str] = []
        self.seen: asyncio.Queue[ConsulView | Exception] = asyncio.Queue()
        self.seen.put_nowait(ConsulView(1, ()))

    async def create_session(self, *_: Any) -> str:
        return "s"

    async def renew_session(self, *_: Any) -> bool:
        if self.is_away:
            raise ConsulUnavailable("away")
        return True

    async def destroy_session(self, _: str) -> None:
        pass

    async def transact(self, *operations: Any) -> int | None:
        await asyncio.sleep(self.takes_s)
        if self.is_away:
            raise ConsulUnavailable("away")
        self.deleted += [each["Key"] for each in operations if each["Verb"] == "delete"]
        return LOCKED_AT

    async def watch(self, _: str) -> AsyncIterator[ConsulView]:
        while True:
            seen = await self.seen.get()
            if isinstance(seen, Exception):
                raise seen
            yield seen


async def a_member(consul: FakeConsul) -> GroupMember:
    client = cast("ConsulClient", consul)
    clock = asyncio.get_running_loop().time
    member = GroupMember(client, GroupKeys("g"), ConsulSession(client, 10_000, 1_000, clock))
    await member.start()
    return member


@virtual_time
async def test_a_claim_that_waits_for_consul_ends_with_the_session():
    consul = FakeConsul()
    member = await a_member(consul)
    consul.is_away = True
    with pytest.raises(SessionEnded):
        await member.claim_any("events", 1, PLAN, wait=True)
    await member.close()


@virtual_time
async def test_a_view_that_cannot_be_read_ends_the_member():
    consul = FakeConsul()
    member = await a_member(consul)
    waiting = asyncio.create_task(member.changed(1, again_soon=False))
    await asyncio.sleep(1)
    consul.seen.put_nowait(ValueError("no JSON"))
    with pytest.raises(ValueError, match="no JSON"):
        await asyncio.wait_for(waiting, 60)
    await member.close()


@virtual_time
async def test_a_view_from_before_the_claim_does_not_end_it_and_a_later_one_does():
    consul = FakeConsul()
    member = await a_member(consul)
    reader = await member.claim_any("events", 1, PLAN, wait=True)
    consul.seen.put_nowait(ConsulView(LOCKED_AT - 1, ()))  # read before our lock was there
    await asyncio.sleep(0.1)
    assert not reader.is_lost
    consul.seen.put_nowait(ConsulView(LOCKED_AT, ()))
    await asyncio.sleep(0.1)
    assert reader.is_lost
    with pytest.raises(PartitionLost, match="another owner, or none"):
        reader.read()
    await member.close()


@virtual_time
async def test_a_partition_that_was_locked_for_a_cancelled_caller_is_released():
    consul = FakeConsul()
    member = await a_member(consul)
    consul.takes_s = 2
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(member.claim_any("events", 1, PLAN, wait=True), 1)
    assert consul.deleted == []
    await asyncio.sleep(5)
    assert consul.deleted == [GroupKeys("g").owner("events", 0)]
    again = await member.claim_any("events", 1, PLAN, wait=False)
    assert again.partition == 0
    await member.close()


@virtual_time
async def test_a_closed_member_leaves_no_task_of_a_cancelled_caller():
    consul = FakeConsul()
    member = await a_member(consul)
    consul.takes_s = 2
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(member.claim_any("events", 1, PLAN, wait=True), 1)
    await member.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_options_that_no_reader_accepts_are_refused_before_a_partition_is_claimed():
    async with ConsulGroup("g", "127.0.0.1:1") as group:
        with pytest.raises(TypeError, match="buffre"):
            await group.new_reader("localhost", "events", 1, buffre=1)
        with pytest.raises(ValueError, match="buffer is -1"):
            await group.new_reader("localhost", "events", 1, buffer=-1)
    async with ConsulGroup("g", "127.0.0.1:1", scheme="spread") as group:
        with pytest.raises(ValueError, match="no address"):
            await group.new_readers("localhost:x", "events", 1)
