"""One session with ZooKeeper. The first call opens it. After it is lost, the next call opens
another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from groupkeeper.storage.backends.key_value.sent_requests import SentRequests
from groupkeeper.storage.base import StorageError, StoreBusy, StoreRefused
from groupkeeper.storage.connections.zookeeper import RETRY_S, ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import (
    NotAllowed,
    OutcomeUnknown,
    ServerUnreachable,
    SessionClosed,
    SessionLost,
    TransactionRefused,
    ZooKeeperError,
)
from groupkeeper.storage.connections.zookeeper_settings import ZooKeeperSettings
from groupkeeper.storage.connections.zookeeper_transaction import CheckNode

TRIES: Final = 10
"""The number of attempts for a transaction if other processes change the same znodes."""

CLOSE_S: Final = 2.0
"""How long ``close`` waits for kazoo's threads. Threads that still run end later by themselves."""

SESSION: Final = "session"
"""The name under which the requests are counted that open a session and keep it alive."""

_T = TypeVar("_T")

_GONE: Final = (ServerUnreachable, SessionLost, SessionClosed)


class ZooKeeperLink:
    """Runs calls over one session. Calls may overlap. ZooKeeper executes them in the order of
    sending.
    """

    def __init__(
        self, name: str, settings: ZooKeeperSettings, timeout_s: float, round_trips: Counter[str]
    ) -> None:
        """``name`` is the URL without secrets, for messages. In ``round_trips`` the link counts the
        requests of each call.
        """
        self._sent = SentRequests(round_trips)
        self._name = name
        self._settings = settings
        self._timeout_s = timeout_s
        self._session: ZooKeeperSession | None = None
        self._newest: ZooKeeperSession | None = None
        """The session that was begun last, even if it has never connected."""
        self._opening = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def run(
        self,
        call: str,
        work: Callable[[ZooKeeperSession], Awaitable[_T]],
        timeout_s: float | None = None,
    ) -> _T:
        """Run ``work`` over the session, and return its result. Raises StorageError if it fails or
        takes too long. ``call`` is the name under which its requests are counted.

        If ``work`` takes too long, the session is closed. Otherwise the server could execute a late
        request of ``work`` after a later call.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(limit_s):
                session = await self._opened()
                with self._sent.of(call):
                    return await work(session)
        except TimeoutError:
            reason = "" if self._newest is None else self._newest.why_not_connected
            self.drop()
            raise StoreBusy(
                f"{self._name}: no answer from the server within {limit_s:.1f} s"
                + (reason and f": {reason}")
            ) from None
        except ZooKeeperError as error:
            if isinstance(error, _GONE):
                self.drop()
            raise explained(self._name, error) from error

    async def run_until_done(
        self,
        call: str,
        work: Callable[[ZooKeeperSession], Awaitable[_T]],
        *guards: StorageError,
        timeout_s: float | None = None,
    ) -> _T:
        """Run work that reads and then writes. Return its result.

        The work is repeated if something changed between reading and writing, or if the connection
        breaks. Each of its transactions begins with checks. ``guards`` are the errors to raise if
        these checks fail: one error for each check.
        """

        async def repeat(session: ZooKeeperSession) -> _T:
            for _ in range(TRIES):
                try:
                    return await work(session)
                except OutcomeUnknown:
                    await asyncio.sleep(RETRY_S)
                except TransactionRefused as refused:
                    if isinstance(refused.error, NotAllowed):
                        raise
                    if refused.position < len(guards):
                        raise guards[refused.position] from None
            raise StorageError(f"{self._name}: a transaction was refused {TRIES} times")

        return await self.run(call, repeat, timeout_s)

    async def _opened(self) -> ZooKeeperSession:
        async with self._opening:
            session = self._session
            if session is None or session.why_ended is not None:
                self.drop()
                with self._sent.of(SESSION):  # its heartbeats too
                    self._session = session = await self._new_session()
            return session

    async def _new_session(self) -> ZooKeeperSession:
        session = self._newest = ZooKeeperSession(self._settings, self._sent.count)
        await session.open()
        try:
            await _catch_up(session)
        except BaseException:
            self._close_later(session)
            raise
        return session

    def drop(self) -> None:
        """Close the session without waiting."""
        session, self._session = self._session, None
        if session is not None:
            self._close_later(session)

    def _close_later(self, session: ZooKeeperSession) -> None:
        task = asyncio.get_running_loop().create_task(session.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close the session. Wait for kazoo's threads, at most ``CLOSE_S``."""
        self.drop()
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSE_S)


async def _catch_up(session: ZooKeeperSession) -> None:
    """Make sure that later reads of the session see all earlier writes of other sessions.

    A server answers reads from its own copy, which may be behind. It answers a transaction, even a
    refused one, only when its copy has everything that was written before.
    """
    with contextlib.suppress(TransactionRefused):
        await session.transact(CheckNode("/"))


def explained(name: str, error: ZooKeeperError) -> StorageError:
    """Return the error of a call as a StorageError with a message of one line."""
    cause = error.error if isinstance(error, TransactionRefused) else error
    if isinstance(cause, NotAllowed):
        return StoreRefused(
            f"{name}: {cause}; give the user in storage.url, and its password, all rights below "
            "this path"
        )
    if isinstance(cause, (*_GONE, OutcomeUnknown)):
        return StoreBusy(f"{name}: no answer from the server: {cause}")
    return StorageError(f"{name}: {cause}")
