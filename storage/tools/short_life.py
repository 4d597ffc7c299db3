"""Registers a command as the only user of a store with a journal."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from groupkeeper.storage.backends.journal.beating import beating
from groupkeeper.storage.backends.journal.driver import JournalDriver
from groupkeeper.storage.backends.journal.life_journal import error_text
from groupkeeper.storage.backends.journal.others import begin_alone
from groupkeeper.storage.backends.journal.store import boot_time_ms
from groupkeeper.storage.base import StorageError
from groupkeeper.storage.leases.lives import NodeLife

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def short_life(
    driver: JournalDriver,
    command: str,
    lease_ttl_ms: int,
    timer_ms: Callable[[], int] = boot_time_ms,
) -> AsyncIterator[str]:
    """Own the store until the end of the block, so that no other process can open it.

    Register the command as a user of the store, like a daemon (``NodeLife``: its life). Show
    regularly that it is alive (``beating``). Yield the id of this life. If an earlier user of the
    store was killed, wait until its life counts as dead. Raises StoreRefused if another process
    uses the store. ``lease_ttl_ms`` must be that of the daemons.
    """
    name = f"groupkeeper storage {command}"
    life = NodeLife(0, f"{command}-{uuid.uuid4().hex}", name, 0)
    await begin_alone(driver, life, lease_ttl_ms, timer_ms)
    try:
        async with beating(driver, life.life_id, lease_ttl_ms):
            yield life.life_id
    finally:
        try:
            await driver.end_life(life.life_id, None)
        except StorageError as error:  # the next user of the store waits until it is dead
            _log.warning("life_not_ended", store=driver.name, error=error_text(error))
