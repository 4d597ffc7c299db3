"""Watches: what stands there now, and each change of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, Self, TypeAlias, TypeVar

from groupkeeper.storage.connections.zookeeper import ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import SessionClosed

Seen = TypeVar("Seen")


class Look(NamedTuple, Generic[Seen]):
    """What a look found, and the mark that another one has after a change."""

    value: Seen
    mark: object


Looking: TypeAlias = Callable[[ZooKeeperSession, Callable[[], None]], Awaitable[Look[Seen]]]
"""Reads, and asks for a call after the next change."""


class Watch(Generic[Seen]):
    """Yields what is there after each change, with the next change already watched.

    Changes that follow each other faster than they are read are one. It raises SessionLost when the
    session is lost, and ends when the watch or the registry is closed.
    """

    current: Seen
    """What the last look found."""

    def __init__(self, session: ZooKeeperSession, look: Looking[Seen]) -> None:
        self._session = session
        self._look = look
        self._mark: object = None
        self._changed = asyncio.Event()
        self._is_closed = False

    @classmethod
    async def begin(cls, session: ZooKeeperSession, look: Looking[Seen]) -> Self:
        """Take the first look."""
        watch = cls(session, look)
        watch.current, watch._mark = await look(session, watch._on_change)
        return watch

    def _on_change(self) -> None:
        self._changed.set()

    async def close(self) -> None:
        """End the iterator, also one that waits."""
        self._is_closed = True
        self._session.forget(self._on_change)
        self._changed.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Seen:
        while True:
            await self._changed.wait()
            if self._is_closed:
                raise StopAsyncIteration
            ended = self._session.why_ended
            if isinstance(ended, SessionClosed):
                raise StopAsyncIteration
            if ended is not None:
                raise type(ended)(str(ended))
            self._changed.clear()
            try:
                found = await self._look(self._session, self._on_change)
            except SessionClosed:
                raise StopAsyncIteration from None
            except BaseException:
                self._changed.set()  # the change is not yet seen: the next call looks again
                raise
            if found.mark != self._mark:
                self.current, self._mark = found
                return self.current
