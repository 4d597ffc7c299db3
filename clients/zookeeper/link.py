"""The session that all objects of a registry share. A lost session can be replaced by a new one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple

from groupkeeper.storage.connections.zookeeper import ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import (
    NodeChanged,
    NodeExists,
    NodeMissing,
    SessionClosed,
    SessionLost,
    ZooKeeperError,
)
from groupkeeper.storage.connections.zookeeper_settings import ZooKeeperSettings

RETRY_S: Final = 0.2
"""The pause between two attempts to open a new session. It is short, because each attempt already
waits for a server."""


class Renewal(NamedTuple):
    """The registrations and claims that a new session has repeated, and those that were refused."""

    kept: tuple[str, ...]
    """The paths of the znodes that belong to the new session."""
    refused: tuple[str, ...]
    """The paths of the znodes that could not be created again, for example because another client
    has created them.
    """


class Link:
    """The present session of a ``Registry``. With ``reregisters``, a new session replaces a lost
    session.
    """

    def __init__(self, settings: ZooKeeperSettings, *, reregisters: bool) -> None:
        self.settings = settings
        self.held: dict[str, Callable[[], bytes]] = {}
        """The path of each of our ephemeral znodes -> a function that returns its content."""
        self.past: set[int] = set()
        """The ids of this registry's earlier sessions. A znode that one of them created is ours."""
        self._reregisters = reregisters
        self._session: ZooKeeperSession | None = None
        self._life: asyncio.Task[None] | None = None
        self._lost: asyncio.Future[SessionLost] | None = None
        self._renewed: asyncio.Future[Renewal] | None = None

    @property
    def chroot(self) -> str:
        return self.settings.address.chroot

    async def open(self) -> None:
        """Begin the first session. Raises RuntimeError if the link was already opened."""
        if self._life is not None:
            raise RuntimeError("a registry is opened once")
        session = await self._opened()
        self._session = session
        self._lost = asyncio.get_running_loop().create_future()
        self._renewed = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(session))

    async def close(self) -> None:
        """End the session. No new session replaces it. Calls that wait raise SessionClosed."""
        if self._life is not None:
            self._life.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._life
        if self._session is not None:
            await self._session.close()
        for waiting in (self._lost, self._renewed):
            if waiting is not None and not waiting.done():
                waiting.set_exception(SessionClosed("the registry was closed"))
                waiting.exception()  # otherwise asyncio logs an error if nobody waits for it
        self.held.clear()

    def session(self) -> ZooKeeperSession:
        """Return the session. Raises SessionLost or SessionClosed if it has ended."""
        if self._session is None:
            raise _not_open()
        ended = self._session.why_ended
        if ended is not None:
            raise type(ended)(str(ended))
        return self._session

    async def wait_lost(self) -> SessionLost:
        """Wait until the session is lost, and return the reason. Raises SessionClosed if the
        registry is closed.
        """
        if self._lost is None:
            raise _not_open()
        return await asyncio.shield(self._lost)

    async def wait_renewed(self) -> Renewal:
        """Wait until the present session is lost, and a new session has repeated the registrations
        and claims. Without ``reregisters``, no new session is opened, so the wait has no end.

        Raises SessionClosed if the registry is closed.
        """
        if self._renewed is None:
            raise _not_open()
        return await asyncio.shield(self._renewed)

    async def _opened(self) -> ZooKeeperSession:
        session = ZooKeeperSession(self.settings)
        await session.open()
        return session

    async def _live(self, session: ZooKeeperSession) -> None:
        while True:
            number = session.id
            ended = await session.wait_ended()
            if not isinstance(ended, SessionLost):
                return
            assert self._lost is not None
            if not self._lost.done():
                self._lost.set_result(ended)
            if not self._reregisters:
                return
            self.past.add(number)
            session = await self._next()
            # if this session is lost too, the next one repeats the registrations and claims
            with contextlib.suppress(SessionLost):
                await self._renew(session)

    async def _next(self) -> ZooKeeperSession:
        while True:
            # a ZooKeeperError means that no server can be reached, or that a server refuses us
            with contextlib.suppress(ZooKeeperError):
                return await self._opened()
            await asyncio.sleep(RETRY_S)

    async def _renew(self, session: ZooKeeperSession) -> None:
        """Repeat all registrations and claims before anyone can use the new session."""
        kept, refused = [], []
        try:
            for path, data in list(self.held.items()):
                if await self._make(session, path, data()):
                    kept.append(path)
                else:
                    refused.append(path)
                    self.held.pop(path, None)
        finally:
            self._session = session
        loop = asyncio.get_running_loop()
        assert self._renewed is not None
        renewed, self._renewed = self._renewed, loop.create_future()
        self._lost = loop.create_future()
        renewed.set_result(Renewal(tuple(kept), tuple(refused)))

    async def _make(self, session: ZooKeeperSession, path: str, data: bytes) -> bool:
        """Create a znode again. Return False if another client has it, or ZooKeeper refuses the
        call.
        """
        while True:
            try:
                return await self._make_or_take(session, path, data)
            except (NodeChanged, NodeMissing):
                continue
            except (SessionLost, SessionClosed):
                raise
            except ZooKeeperError:
                return False

    async def _make_or_take(self, session: ZooKeeperSession, path: str, data: bytes) -> bool:
        try:
            await session.create(path, data, ephemeral=True)
        except NodeExists:
            node = await session.get(path)
            if node.owner not in self.past:
                return False
            await session.take_over(path, node._replace(data=data))
        return True


def _not_open() -> SessionClosed:
    return SessionClosed("the registry is not open: use `async with`, or open it")
