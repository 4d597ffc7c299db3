"""Registers a command as the only user of a store, for stores that several processes can share."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from groupkeeper.storage.backends.journal.beating import beating
from groupkeeper.storage.backends.journal.driver import JournalDriver
from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.leases.lives import NodeLife


@asynccontextmanager
async def short_life(driver: JournalDriver, command: str, lease_ttl_ms: int) -> AsyncIterator[str]:
    """Own the store until the end of the block, so that no other process can open it.

    The command is registered like a daemon (``NodeLife``), and renews this registration. The result
    is the id of the registration. Raises StoreRefused if another process uses the store.
    """
    name = f"groupkeeper storage {command}"
    life = NodeLife(0, f"{command}-{uuid.uuid4().hex}", name, 0)
    begun = await driver.begin_life(life)
    if begun.others:
        other = begun.others[0]
        raise StoreRefused(
            f"{driver.name}: is in use by node {other.node_id} ({other.name}): stop it first. "
            "If it was killed, start and stop it once"
        )
    try:
        async with beating(driver, life.life_id, lease_ttl_ms):
            yield life.life_id
    finally:
        await driver.end_life(life.life_id, None)
