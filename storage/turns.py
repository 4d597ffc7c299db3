"""Iterates over many items, and lets other tasks of the loop run in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def in_turns(items: Iterable[T], a_turn: int) -> AsyncIterator[T]:
    """Yield the items. After every ``a_turn`` items, let the other tasks of the loop run."""
    for number, item in enumerate(items, 1):
        yield item
        if number % a_turn == 0:
            await asyncio.sleep(0)
