"""A page that is made once for all who ask for it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class SharedPage:
    """Makes a page. All callers that ask while it is being made get the same page."""

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        """``make`` returns a new page. It is not called again before the last call has ended."""
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
        """Cancel the making of a page, if one is being made."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.wait([self._making])
