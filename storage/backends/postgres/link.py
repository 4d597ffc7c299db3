"""One connection to PostgreSQL. The first call opens it. After a failure, the next call opens it
again.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import asyncpg

from groupkeeper.storage.base import StorageError, StoreBusy, StoreRefused

_T = TypeVar("_T")

Connect = Callable[[], Awaitable[asyncpg.Connection]]

_BROKEN: Final = (OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError, TimeoutError)
_REFUSED: Final = (
    asyncpg.InvalidPasswordError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)
_BUSY: Final = (
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.DiskFullError,
)

_RIGHTS: Final = {
    "database": "CREATE",
    "schema": "USAGE, CREATE",
    "table": "SELECT, INSERT, UPDATE, DELETE",
    "sequence": "USAGE",
}
"""The rights that groupkeeper needs on each kind of object."""

POOLER: Final = (
    "a pooler between groupkeeper and the server does not keep the settings or the statements of a "
    "connection: name the server itself in storage.url"
)
"""The advice for a connection through PgBouncer. PgBouncer refuses search_path at the start of a
connection, or, if it is configured so, ignores it. If PgBouncer pools by transaction, the server of
the next transaction may not know the prepared statements."""


class ServerLink:
    """Runs one call at a time over one connection. If a call fails or is cancelled, the connection
    is closed.
    """

    def __init__(
        self, name: str, connect: Connect, timeout_s: float, round_trips: Counter[str]
    ) -> None:
        """``name`` is the URL without secrets, for messages. In ``round_trips`` the link counts the
        statements of each call.
        """
        self._name = name
        self._connect = connect
        self._timeout_s = timeout_s
        self._round_trips = round_trips
        self._connection: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()

    async def run(self, call: str, work: Callable[[asyncpg.Connection], Awaitable[_T]]) -> _T:
        """Run work of one statement over the connection. Return its result. Raises StorageError if
        it fails or takes too long. ``call`` is the name under which the statement is counted.
        """
        self._round_trips[call] += 1
        return await self._run(work)

    async def in_transaction(
        self, call: str, work: Callable[[asyncpg.Connection], Awaitable[_T]]
    ) -> _T:
        """Run work of several statements as one transaction. Return its result. Raises StorageError
        if it fails or takes too long.
        """

        def count(_: object) -> None:
            self._round_trips[call] += 1

        async def transact(connection: asyncpg.Connection) -> _T:
            with connection.query_logger(count):
                async with connection.transaction():
                    return await work(connection)

        return await self._run(transact)

    async def _run(self, work: Callable[[asyncpg.Connection], Awaitable[_T]]) -> _T:
        async with self._turn:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await work(await self._connected())
            except StorageError:
                raise
            except BaseException as error:
                self.drop()
                if isinstance(error, Exception):
                    raise explained(self._name, error) from error
                raise

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

    def server_pid(self) -> int | None:
        """Return the process id of the server's side of the connection; None if there is none."""
        connection = self._connection
        if connection is None or connection.is_closed():
            return None
        pid: int = connection.get_server_pid()
        return pid

    def drop(self) -> None:
        """Close the connection without waiting."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


def explained(name: str, error: Exception) -> StorageError:
    """Return the StorageError for an error of a call. Its message is one line."""
    text = " ".join(str(error).split()) or repr(error)
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreRefused(f"{name}: {text}: {missing_grant(text)}")
    if isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in text:
        return StoreRefused(f"{name}: {text}: {POOLER}")
    if isinstance(error, asyncpg.InvalidSQLStatementNameError):
        return StoreRefused(f"{name}: {text}: {POOLER}")
    if isinstance(error, _REFUSED):
        return StoreRefused(f"{name}: {text}")
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return StoreBusy(f"{name}: the server is read-only, perhaps a standby: {text}")
    if isinstance(error, _BUSY):
        return StoreBusy(f"{name}: {text}")
    if isinstance(error, _BROKEN):
        return StoreBusy(f"{name}: no answer from the server: {text}")
    return StorageError(f"{name}: {text}")


def missing_grant(text: str) -> str:
    """Return advice for a message about a missing right: the GRANT that the owner of the object, or
    a superuser, has to run.
    """
    found = re.search(r"(?:permission denied for|must be owner of) (\w+) (\S+)", text)
    kind, name = found.groups() if found else ("", "")
    rights = _RIGHTS.get(kind)
    if rights is None:
        return "GRANT this user the rights on all tables of the schema"
    return f"GRANT {rights} ON {kind.upper()} {name} TO this user"
