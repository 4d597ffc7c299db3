"""A watch of keys waits in Consul for the next change, and looks again after whatever happens."""

from __future__ import annotations

import asyncio
import contextlib

from groupkeeper.storage.connections.consul import ConsulClient, ConsulView
from groupkeeper.storage.connections.consul_errors import ConsulUnavailable
from tests.helpers.runtime.virtual_loop import virtual_time

MINUTE_S = 60


class WatchedKeys(ConsulClient):
    """A client whose list answers as Consul does: at once, or when the index has grown."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1")
        self.index = 7
        self.is_away = False
        self.asked: list[int] = []
        self._changed = asyncio.Event()

    def change(self, index: int) -> None:
        self.index = index
        self._changed.set()

    async def list(self, _prefix: str, *, behind: int = 0) -> ConsulView:
        self.asked.append(behind)
        assert len(self.asked) < 1_000  # else it asks without a pause
        if self.is_away:
            raise ConsulUnavailable("away")
        if behind and behind == self.index:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), MINUTE_S)
        return ConsulView(self.index, ())


class Watching:
    """A watch, and what it has yielded."""

    def __init__(self, keys: WatchedKeys) -> None:
        self.seen: list[int] = []
        self.task = asyncio.create_task(self._watch(keys))

    async def _watch(self, keys: WatchedKeys) -> None:
        async for view in keys.watch("x"):
            self.seen.append(view.at_index)

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@virtual_time
async def test_every_question_waits_behind_the_last_index_and_a_quiet_minute_yields_nothing():
    async with WatchedKeys() as keys:
        watching = Watching(keys)
        await asyncio.sleep(1)
        keys.change(9)
        await asyncio.sleep(2 * MINUTE_S + 1)
        await watching.end()
    assert watching.seen == [7, 9]
    assert keys.asked == [0, 7, 9, 9, 9]


@virtual_time
async def test_after_consul_was_restored_to_a_lower_index_all_is_looked_at_again():
    async with WatchedKeys() as keys:
        watching = Watching(keys)
        await asyncio.sleep(1)
        keys.change(3)
        await asyncio.sleep(1)
        await watching.end()
    assert watching.seen == [7, 3]
    assert keys.asked == [0, 7, 0, 3]


@virtual_time
async def test_while_consul_is_away_it_is_asked_with_growing_pauses_and_nothing_is_yielded():
    async with WatchedKeys() as keys:
        watching = Watching(keys)
        await asyncio.sleep(1)
        keys.is_away = True
        keys.change(8)
        await asyncio.sleep(MINUTE_S)
        away = len(keys.asked)
        keys.is_away = False
        await asyncio.sleep(5)
        await watching.end()
    assert watching.seen == [7, 8]
    assert away < MINUTE_S
