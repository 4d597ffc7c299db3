"""Begins the registration of a process with a store (its life), after those of killed processes
have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from groupkeeper.storage.backends.journal.driver import Begun, JournalDriver
from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.leases.lives import LifeWatch, NodeLife

_log = structlog.get_logger(__name__)


class StoreInUse(StoreRefused):
    """Another process uses the store: its life has not ended."""


async def begin_alone(
    driver: JournalDriver, life: NodeLife, ttl_ms: int, timer_ms: Callable[[], int]
) -> Begun:
    """Begin a life. If there are other lives, first end those that do not beat. Raises StoreInUse
    if another life beats.

    ``ttl_ms`` must be that of the other processes: with a shorter time, this would end the life of
    a process between two of its beats.
    """
    begun = await driver.begin_life(life)
    if begun.others:
        for dead in await dead_lives(driver, begun.others, ttl_ms, timer_ms):
            await driver.end_life(dead.life_id, dead.counter)
        begun = await driver.begin_life(life)
        if begun.others:
            raise _in_use(driver, begun.others[0])
    return begun


async def dead_lives(
    driver: JournalDriver, others: Sequence[NodeLife], ttl_ms: int, timer_ms: Callable[[], int]
) -> Sequence[NodeLife]:
    """Watch the counters of the other lives, until each counter has stayed the same for ``ttl_ms``.
    Return the lives that nobody has ended during this time. Writes nothing. Raises StoreInUse if a
    counter rises, because that process is alive.
    """
    watch = LifeWatch(ttl_ms)
    first = {life.life_id: life for life in others}
    _log.warning("life_goes_on", store=driver.name, name=others[0].name)
    while True:
        sent_ms = timer_ms()
        lives = [life for life in await driver.lives() if life.life_id in first]
        for life in lives:
            if life.counter != first[life.life_id].counter:
                raise _in_use(driver, life)
        if len(dead := watch.look(lives, sent_ms, timer_ms())) == len(lives):
            return dead
        await asyncio.sleep(watch.next_look_ms() / 1000)


def _in_use(driver: JournalDriver, life: NodeLife) -> StoreInUse:
    return StoreInUse(
        f"{driver.name}: is in use by node {life.node_id} ({life.name}): stop it first, "
        "or name another store"
    )
