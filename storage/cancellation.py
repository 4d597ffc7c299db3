"""Distinguishes a cancelled task from a store that raises CancelledError by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from groupkeeper.storage.base import StorageError

_T = TypeVar("_T")


def is_cancelled() -> bool:
    """Return True if the current task was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def unless_cancelled(call: Awaitable[_T]) -> _T:
    """Return the result of a call to the store.

    A store may raise CancelledError by itself, although nobody cancelled the current task. For
    example, the call may wait for a connection, and the task that opens the connection is
    cancelled. This function then raises StorageError instead.
    """
    try:
        return await call
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise StorageError("the store cancelled a call by itself") from None
