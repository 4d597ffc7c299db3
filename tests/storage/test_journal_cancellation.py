"""A server's client may raise CancelledError by itself, although nobody cancelled the call. The
work of a store in the background goes on.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from groupkeeper.storage.backends.journal.beating import beating
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from tests.helpers.core.records import commit
from tests.helpers.storage.fake_driver import FakeDriver, FakeServer
from tests.helpers.storage.late_appends import TTL_MS
from tests.helpers.storage.sealed_store import until
from tests.helpers.storage.storage_owner import Owner


class Cancelling:
    """The pause of a driver. It raises CancelledError in the next calls with a name."""

    def __init__(self) -> None:
        self.name = ""
        self.left = 0

    def cancel(self, name: str, count: int = 2) -> None:
        self.name, self.left = name, count

    async def __call__(self, name: str, is_done: bool) -> None:
        if name == self.name and self.left and not is_done:
            self.left -= 1
            raise asyncio.CancelledError


def a_store(server: FakeServer, pause: Cancelling) -> JournalStorage:
    driver = FakeDriver(server, pause)
    return JournalStorage(driver, node_id=1, name="host:1", lease_ttl_ms=TTL_MS)


async def test_beats_go_on() -> None:
    server, pause = FakeServer(), Cancelling()
    owner = await Owner(a_store(server, pause)).start()
    pause.cancel("beat")
    await until(lambda: not pause.left)
    (life,) = server.going_on()
    await until(lambda: server.going_on()[0].counter > life.counter)
    await owner.append(0, [commit("g", 1)])
    await owner.storage.close()


async def test_beats_during_long_work_go_on() -> None:
    server, pause = FakeServer(), Cancelling()
    owner = await Owner(a_store(server, pause)).start()
    driver = FakeDriver(server, pause)
    await driver.open_to_read()
    (life,) = server.going_on()
    async with beating(driver, life.life_id, TTL_MS):
        pause.cancel("beat", 5)
        await until(lambda: not pause.left)
        (life,) = server.going_on()
        await until(lambda: server.going_on()[0].counter > life.counter + 1)
    await owner.storage.close()


async def test_what_a_fold_did_not_write_is_folded_again() -> None:
    """Otherwise the next fold would delete journal entries whose groups are nowhere else."""
    server, pause = FakeServer(), Cancelling()
    owner = await Owner(a_store(server, pause)).start()
    await owner.append(0, [commit("first", 1)])
    pause.cancel("fold", 1)
    await owner.fold()
    assert not pause.left
    await owner.append(1, [commit("second", 1)])
    await owner.fold_all()
    await owner.storage.close()
    again = await Owner(a_store(server, Cancelling())).start()
    for shard, group_id in ((0, "first"), (1, "second")):
        assert again.model.saved(shard, group_id) == owner.model.saved(shard, group_id) is not None
    await again.storage.close()


async def test_sealing_goes_on(tmp_path: Path) -> None:
    server, pause = FakeServer(), Cancelling()
    store = a_store(server, pause)
    storage = SealedStorage(store, SealSettings(directory=tmp_path, segment_bytes=1), poll_s=0.01)
    owner = await Owner(storage).start()
    pause.cancel("write_seal_note", 1)
    await owner.append(0, [commit("g", 1)])
    await until(lambda: not pause.left)
    assert storage._sealing_task is not None
    assert not storage._sealing_task.done()
    await until(lambda: storage.sealing_failures == 1)
    await owner.storage.close()
