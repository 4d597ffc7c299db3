"""Ends sessions of suspended processes that hold a lock.

PostgreSQL ends a transaction by itself if its client sends no statement for a while
(``idle_in_transaction_session_timeout``). But asyncpg sends a new statement in two steps: the text,
and after the server's answer the arguments. Between these steps the server does not count the
session as idle. If the process is suspended between them, the session keeps its locks until
``statement_timeout``, which is a minute for a fold.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import asyncpg

from groupkeeper.storage.backends.postgres.link import ServerLink
from groupkeeper.storage.base import StorageError

_T = TypeVar("_T")

_LOOKS: Final = 4
"""The number of times that the sessions are examined within the time that a session may be silent.
"""

_END: Final = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid = ANY(pg_blocking_pids($1)) AND state = 'active' AND wait_event = 'ClientRead'
    AND state_change < clock_timestamp() - $2 * interval '1 millisecond'"""
"""SQL that ends those sessions that hold a lock for which session $1 waits, and whose client has
sent nothing for $2 milliseconds."""


class SilentSessions:
    """Ends the sessions for which a call waits, if their processes are silent for too long."""

    def __init__(self, link: ServerLink, silent_ms: int) -> None:
        """``link`` must not be the one over which the calls run. ``silent_ms`` is the time for
        which a process may be silent.
        """
        self._link = link
        self._silent_ms = silent_ms

    async def end_while(self, of: ServerLink, call: Coroutine[Any, Any, _T]) -> _T:
        """Run a call over the link ``of``, and return its result. If the call waits for a lock of a
        silent session, end that session.
        """
        task = asyncio.ensure_future(call)
        try:
            while not (await asyncio.wait([task], timeout=self._silent_ms / 1000 / _LOOKS))[0]:
                await self._end(of.server_pid())
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def _end(self, blocked_pid: int | None) -> None:
        if blocked_pid is None:
            return

        async def end(connection: asyncpg.Connection) -> None:
            await connection.execute(_END, blocked_pid, self._silent_ms)

        with contextlib.suppress(StorageError):  # the call fails too, or the next look succeeds
            await self._link.run("end_silent", end)
