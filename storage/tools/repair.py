"""Mend a store with a journal, for ``groupkeeper storage check --repair``.

A *life* is the registration of a process with the store. A repair has three steps. The first two
are those of a start:

1. End the life of a process that was killed, such as an earlier repair.
2. Apply the journals of ended lives to the stored values.
3. Remove the nodes or rows that interrupted writes and ended lives have left. Nobody needs these.

A repair keeps values that cannot be read. It also keeps the nodes of the mirror (a copy of the
groups), because they may belong to another program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from groupkeeper.storage.backends.journal.driver import HasLeftovers, JournalDriver
from groupkeeper.storage.backends.journal.others import dead_lives
from groupkeeper.storage.backends.journal.store import boot_time_ms
from groupkeeper.storage.backends.journal.succession import fold_ended
from groupkeeper.storage.base import StoreIdentity
from groupkeeper.storage.leases.lives import NodeLife
from groupkeeper.storage.tools.short_life import short_life


async def repair(
    driver: JournalDriver,
    identity: StoreIdentity,
    *,
    applies: bool,
    lease_ttl_ms: int,
    timer_ms: Callable[[], int] = boot_time_ms,
) -> list[str]:
    """Return the faults of the store, a line each. If ``applies``, also mend them.

    If a process that used the store was killed, wait for ``lease_ttl_ms`` until its life counts as
    dead. Raises StoreRefused if a process uses the store: a write that this process has not
    finished would look like an interrupted one.
    """
    await driver.open(identity)
    try:
        dead: Sequence[NodeLife] = []
        if lives := await driver.lives():
            dead = await dead_lives(driver, lives, lease_ttl_ms, timer_ms)
        found = [f"the life of {each.name}, which was killed" for each in dead]
        if not applies:
            lives_to_fold = [*await driver.ended_lives(), *(each.life_id for each in dead)]
            return [
                *found,
                *await _unfolded(driver, lives_to_fold),
                *await _leftovers(driver),
            ]
        for each in dead:
            await driver.end_life(each.life_id, each.counter)
        async with short_life(driver, "check", lease_ttl_ms, timer_ms) as life_id:
            ended_lives = await driver.ended_lives()
            found += await _unfolded(driver, ended_lives)
            for ended in ended_lives:
                await fold_ended(driver, life_id, ended)
            found += await _leftovers(driver)
            if isinstance(driver, HasLeftovers):
                await driver.remove_leftovers(life_id)
            return found
    finally:
        await driver.close()


async def _unfolded(driver: JournalDriver, ended_lives: Iterable[str]) -> list[str]:
    found = []
    for ended in ended_lives:
        entries = 0
        async for _ in driver.journal(ended):
            entries += 1
        if entries:
            found.append(f"appends of the ended life {ended} that are not folded: {entries}")
    return found


async def _leftovers(driver: JournalDriver) -> list[str]:
    return [*await driver.leftovers()] if isinstance(driver, HasLeftovers) else []
