"""Distinguish a cancelled task from a store whose call raises CancelledError by itself."""

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
    """Return the result of a call of the store.

    Raises StorageError if the call raises CancelledError although the current task was not
    cancelled. This happens, for example, if the call waits for a connection whose opener was
    cancelled.
    """
    try:
        return await call
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        raise StorageError("the store cancelled a call by itself") from None
