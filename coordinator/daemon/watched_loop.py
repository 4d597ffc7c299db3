"""uvloop whose callbacks are timed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

import uvloop

from groupkeeper.coordinator.server.watch import CallbackWatch

Args = TypeVarTuple("Args")


class WatchedLoop(uvloop.Loop):
    """Watches its callbacks and the steps of its tasks.

    What it calls itself when a socket has something is not: a protocol watches its own
    ``data_received``, as ``server.connection`` does.
    """

    def __init__(self, watch: CallbackWatch) -> None:
        """Make a loop that reports to the watch."""
        super().__init__()
        self._watch = watch

    def call_soon(
        self,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As every loop."""
        return super().call_soon(self._watched, callback, args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """As every loop."""
        return super().call_soon_threadsafe(self._watched, callback, args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """As every loop; ``call_at`` comes here too."""
        return super().call_later(delay, self._watched, callback, args, context=context)

    def _watched(self, callback: Callable[[*Args], object], args: tuple[*Args]) -> None:
        begun_s = self._watch.begin()
        try:
            callback(*args)
        finally:
            self._watch.end(begun_s, callback)
