"""Telling a cancelled task from a call of the store that ends as cancelled by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from groupkeeper.storage.base import StorageError

_T = TypeVar("_T")


def is_cancelled() -> bool:
    """Whether somebody has cancelled the task at hand."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def unless_cancelled(call: Awaitable[_T]) -> _T:
    """Return what a call of the store returns. StorageError where it ends as cancelled and nobody
    has cancelled us: others waited for the same connection, say, and gave up.
    """
    try:
        return await call
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise StorageError("the store cancelled a call by itself") from None
