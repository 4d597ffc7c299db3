"""A page that is made once for all who ask for it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class SharedPage:
    """Makes a page. Those who ask while it is made get the same one."""

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        """``make`` is not called again before it has returned."""
        self._make = make
        self._making: asyncio.Task[bytes] | None = None

    async def page(self) -> bytes:
        """Return the page. If one caller is cancelled, the others still get it."""
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._made())
        return await asyncio.shield(self._making)

    async def _made(self) -> bytes:
        return await self._make()

    async def stop(self) -> None:
        """End the page that is being made."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait([self._making])
