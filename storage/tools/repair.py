"""Mend a store with a journal, for ``groupkeeper storage check --repair``.

A life is the time in which one process uses the store. The repair removes only nodes and rows of
interrupted writes and of ended lives, which nobody needs. Before that, it applies the journals of
ended lives to the stored values, as a start does. It keeps values that cannot be read, and nodes
of the mirror, which may belong to another program.
"""

from __future__ import annotations

from groupkeeper.storage.backends.journal.driver import HasLeftovers, JournalDriver
from groupkeeper.storage.backends.journal.succession import fold_ended
from groupkeeper.storage.base import StoreIdentity, StoreRefused
from groupkeeper.storage.tools.short_life import short_life


async def repair(
    driver: JournalDriver, identity: StoreIdentity, *, applies: bool, lease_ttl_ms: int
) -> list[str]:
    """Return the faults of the store, a line each. If ``applies``, also mend them.

    Raises StoreRefused if a process uses the store: a write that this process has not finished
    would look like an interrupted one.
    """
    await driver.open(identity)
    try:
        if lives := await driver.lives():
            raise StoreRefused(
                f"{driver.name}: is in use by node {lives[0].node_id} ({lives[0].name}): stop it "
                "first. If it was killed, start and stop it once"
            )
        if not applies:
            return [*await _unfolded(driver), *await _leftovers(driver)]
        async with short_life(driver, "check", lease_ttl_ms) as life_id:
            found = await _unfolded(driver)
            for ended in await driver.ended_lives():
                await fold_ended(driver, life_id, ended)
            found += await _leftovers(driver)
            if isinstance(driver, HasLeftovers):
                await driver.remove_leftovers(life_id)
            return found
    finally:
        await driver.close()


async def _unfolded(driver: JournalDriver) -> list[str]:
    found = []
    for ended in await driver.ended_lives():
        entries = 0
        async for _ in driver.journal(ended):
            entries += 1
        if entries:
            found.append(f"appends of the ended life {ended} that are not folded: {entries}")
    return found


async def _leftovers(driver: JournalDriver) -> list[str]:
    return [*await driver.leftovers()] if isinstance(driver, HasLeftovers) else []
