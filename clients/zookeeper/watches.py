"""Watches: the current value of a znode or of a list of znodes, and its value after each change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, Self, TypeAlias, TypeVar

from groupkeeper.storage.connections.zookeeper import ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import NodeMissing, SessionClosed

Seen = TypeVar("Seen")


class Look(NamedTuple, Generic[Seen]):
    """The result of one read: the value, and a mark. If two reads have the same mark, the value did
    not change between them.
    """

    value: Seen
    mark: object


Looking: TypeAlias = Callable[[ZooKeeperSession, Callable[[], None]], Awaitable[Look[Seen]]]
"""A function of (session, callback). It reads a value, and ZooKeeper calls the callback at the next
change of the value.
"""


def at_node(path: str, decode: Callable[[str, bytes], Seen]) -> Looking[Seen | None]:
    """Return a function that reads and decodes the content of a znode. Its value is None while the
    znode does not exist.
    """

    async def look(session: ZooKeeperSession, changed: Callable[[], None]) -> Look[Seen | None]:
        while True:
            try:
                node = await session.get(path, changed)
            except NodeMissing:
                if not await session.exists(path, changed):
                    return Look(None, None)
            else:
                return Look(decode(path, node.data), node.changed_in)

    return look


class Watch(Generic[Seen]):
    """An iterator that yields a value after each change. Before it yields, it already watches for
    the next change, so that no change is missed.

    If several changes happen before you read, you get only the last value. The iterator raises
    SessionLost when the session is lost. It ends when the watch or the registry is closed.
    """

    current: Seen
    """The value that was read last."""

    def __init__(self, session: ZooKeeperSession, look: Looking[Seen]) -> None:
        self._session = session
        self._look = look
        self._mark: object = None
        self._changed = asyncio.Event()
        self._is_closed = False

    @classmethod
    async def begin(cls, session: ZooKeeperSession, look: Looking[Seen]) -> Self:
        """Return a watch whose ``current`` value has been read."""
        watch = cls(session, look)
        watch.current, watch._mark = await look(session, watch._on_change)
        return watch

    def _on_change(self) -> None:
        self._changed.set()

    async def close(self) -> None:
        """End the iterator, even if a task waits for its next value."""
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
                self._changed.set()  # this change was not read, so the next call reads again
                raise
            if found.mark != self._mark:
                self.current, self._mark = found
                return self.current
