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

    Raises StorageError if the call raises CancelledError although the current task was not
    cancelled. This happens, for example, if the call waits for a connection, and the task that
    opens the connection is cancelled.
    """
    try:
        return await call
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise StorageError("the store cancelled a call by itself") from None
