"""The readers of a share, while its group changes. The member and its readers are fakes."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from groupkeeper.clients.readers.errors import PartitionLost, ReaderClosed, SessionEnded
from groupkeeper.clients.readers.group_keys import ConsulGroupView, OwnedPartition
from groupkeeper.clients.readers.group_reader import GroupReader
from groupkeeper.clients.readers.spread_readers import SpreadReaders
from tests.helpers.runtime.virtual_loop import virtual_time

TOPIC = "events"


class FakeReader:
    """A reader whose hand-over takes as long as the test says."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.is_lost = False
        self.is_released = asyncio.Event()

    async def hand_over(self, _error: PartitionLost) -> None:
        await self.is_released.wait()

    async def close(self) -> None:
        self.is_released.set()


class FakeMember:
    """A member that sees what the test shows it, and gets every lock."""

    id = "me"

    def __init__(self) -> None:
        self.view = ConsulGroupView()
        self.error: Exception | None = None
        self.readers: dict[int, FakeReader] = {}
        self._change = asyncio.Event()

    def show(self, members: list[str], owners: dict[int, str]) -> None:
        """The next view."""
        self.view = ConsulGroupView(
            self.view.at_index + 1,
            {TOPIC: {p: OwnedPartition(name, name, 1) for p, name in owners.items()}},
            {TOPIC: dict.fromkeys(members, 2)},
        )
        self._change.set()

    async def changed(self, behind: int, *, again_soon: bool) -> None:
        while self.view.at_index <= behind:
            self._change.clear()
            await self._change.wait()

    async def try_claim(self, _topic: str, partition: int) -> GroupReader | None:
        reader = self.readers[partition] = FakeReader(partition)
        return cast("GroupReader", reader)

    async def leave(self, _topic: str) -> None:
        pass


@virtual_time
async def test_a_share_is_settled_when_a_hand_over_ends_after_the_last_view_that_shows_it():
    member = FakeMember()
    member.show(["me"], {})
    share = SpreadReaders(member, TOPIC, 2)
    await asyncio.wait_for(share.settled(), 5)
    assert share.partitions == [0, 1]
    member.show(["me", "other"], {0: "me", 1: "me"})
    await asyncio.sleep(1)
    (kept,) = share.partitions
    given = 1 - kept
    # Consul has deleted our lock, and the other has it; its answer to us is still under way
    member.show(["me", "other"], {kept: "me", given: "other"})
    await asyncio.sleep(1)
    waiting = asyncio.create_task(share.settled())
    await asyncio.sleep(1)
    assert not waiting.done()
    member.readers[given].is_released.set()
    await asyncio.wait_for(waiting, 5)
    await share.close()


@virtual_time
async def test_a_share_that_has_ended_says_so_to_every_call_from_then_on():
    member = FakeMember()
    member.show(["me"], {})
    share = SpreadReaders(member, TOPIC, 2)
    await asyncio.wait_for(share.settled(), 5)
    member.show(["me", "other"], {0: "me", 1: "me"})
    await asyncio.sleep(1)  # a hand-over is under way
    member.error = SessionEnded("g", "lost")
    member.show(["me", "other"], {0: "me", 1: "me"})
    await asyncio.sleep(1)
    for reader in member.readers.values():
        reader.is_lost = True
        reader.is_released.set()
    await asyncio.sleep(1)
    for call in (share.settled, share.changed, lambda: anext(share.read())):
        with pytest.raises(SessionEnded):
            await asyncio.wait_for(call(), 5)
    await share.close()


@virtual_time
async def test_a_closed_share_leaves_nobody_waiting():
    member = FakeMember()
    member.show(["me", "other"], {0: "other", 1: "other"})
    share = SpreadReaders(member, TOPIC, 2)
    calls = (share.settled, share.changed)
    waiting = [asyncio.create_task(call()) for call in calls]
    await asyncio.sleep(1)
    await share.close()
    later = [asyncio.create_task(call()) for call in (*calls, lambda: anext(share.read()))]
    for task in (*waiting, *later):
        with pytest.raises(ReaderClosed):
            await asyncio.wait_for(task, 5)
