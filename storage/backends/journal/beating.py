"""Shows other processes that this process is alive while it does long work.

A *life* is the registration of a process with the store. A *beat* raises the counter of a life.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from groupkeeper.storage.backends.journal.driver import JournalDriver, LifeOver
from groupkeeper.storage.base import StorageError
from groupkeeper.storage.cancellation import unless_cancelled
from groupkeeper.storage.leases.lives import beat_interval_ms


@asynccontextmanager
async def beating(driver: JournalDriver, life_id: str, lease_ttl_ms: int) -> AsyncIterator[None]:
    """Beat until the end of the block, so that no other process counts the life as dead.

    A beat that fails is repeated. If another process has ended the life, the next write in the
    block is refused.
    """
    task = asyncio.ensure_future(_beat(driver, life_id, lease_ttl_ms))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _beat(driver: JournalDriver, life_id: str, lease_ttl_ms: int) -> None:
    while True:
        try:
            async with asyncio.timeout(lease_ttl_ms / 1000):
                await unless_cancelled(driver.beat(life_id))
        except LifeOver:
            return
        except (StorageError, TimeoutError):
            pass  # the next beat may succeed
        await asyncio.sleep(beat_interval_ms(lease_ttl_ms) / 1000)
