"""Event loops of other threads, for code that blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Final, TypeVar

from groupkeeper.storage.base import StorageError

CALL_S: Final = 60.0
"""How long a thread waits for a call of the driver, which has a shorter time limit of its own."""

_T = TypeVar("_T")


class LoopRunner:
    """Runs calls on an event loop of another thread, and waits for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __call__(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Run a call. Raises StorageError if the loop has ended, or does not answer."""
        assert threading.get_ident() != getattr(self._loop, "_thread_id", None), "would wait for us"
        try:
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        except RuntimeError as error:  # the loop is closed
            call.close()
            raise StorageError(f"the store is closed: {error}") from error
        try:
            return future.result(CALL_S)
        except FutureTimeout:
            future.cancel()
            raise StorageError(f"the store has not answered for {CALL_S:.0f} s") from None


class BlockingLoop:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        """Start the thread under this name."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self.run = LoopRunner(self._loop)
        """Runs a call on the loop, and waits for it."""

    def close(self) -> None:
        """End the thread and the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
