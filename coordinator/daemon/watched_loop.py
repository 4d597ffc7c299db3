"""An event loop (uvloop) that measures each callback, to report callbacks that block the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

import uvloop

from groupkeeper.coordinator.server.watch import CallbackWatch

Args = TypeVarTuple("Args")


class WatchedLoop(uvloop.Loop):
    """A loop that measures its callbacks and the steps of its tasks.

    uvloop calls a protocol's ``data_received`` directly, so this call is not measured here. A
    protocol measures it itself, as ``server.connection`` does.
    """

    def __init__(self, watch: CallbackWatch) -> None:
        super().__init__()
        self._watch = watch

    call_soon_unmeasured = uvloop.Loop.call_soon
    """Schedules a callback without measuring it: for the clock, which has one in every iteration of
    the loop.
    """

    def call_soon(
        self,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        return super().call_soon(self._watched, callback, args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.Handle:
        return super().call_soon_threadsafe(self._watched, callback, args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule a callback, and measure it when it runs. ``call_at`` uses this method too."""
        return super().call_later(delay, self._watched, callback, args, context=context)

    def _watched(self, callback: Callable[[*Args], object], args: tuple[*Args]) -> None:
        begun_s = self._watch.begin()
        try:
            callback(*args)
        finally:
            self._watch.end(begun_s, callback)
