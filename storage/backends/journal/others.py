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


async def begin_alone(
    driver: JournalDriver, life: NodeLife, ttl_ms: int, timer_ms: Callable[[], int]
) -> Begun:
    """Begin a life. If there are others, first end each whose process does not beat any more.
    Raises StoreRefused if another life beats.

    ``ttl_ms`` must be that of the other processes: with a shorter time, this would end the life of
    a process between two of its beats.
    """
    begun = await driver.begin_life(life)
    if begun.others:
        await _wait_until_dead(driver, begun.others, ttl_ms, timer_ms)
        begun = await driver.begin_life(life)
        if begun.others:
            raise _in_use(driver, begun.others[0])
    return begun


async def _wait_until_dead(
    driver: JournalDriver, others: Sequence[NodeLife], ttl_ms: int, timer_ms: Callable[[], int]
) -> None:
    """Watch the counters of the other lives. End each life whose counter has stood still for
    ``ttl_ms``. Raises StoreRefused if a counter rises, because its process is alive.
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
        dead = watch.look(lives, sent_ms, timer_ms())
        for life in dead:
            await driver.end_life(life.life_id, life.counter)
        if len(dead) == len(lives):
            return
        await asyncio.sleep(watch.next_look_ms() / 1000)


def _in_use(driver: JournalDriver, life: NodeLife) -> StoreRefused:
    return StoreRefused(
        f"{driver.name}: is in use by node {life.node_id} ({life.name}): stop it first, "
        "or name another store"
    )
