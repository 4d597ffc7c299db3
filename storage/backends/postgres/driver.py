"""A shared store in PostgreSQL: the calls of ``storage.backends.journal.driver`` as SQL. That file
explains the words life, beat, journal and fold.

This file is long because every call of the journal is here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any, Final, TypeVar

import asyncpg

from groupkeeper.storage.backends.journal.driver import (
    Begun,
    Fold,
    JournalEnd,
    JournalEntry,
    LifeOver,
    LoggedEvent,
    LogSpan,
    OwnedShard,
    SeqMoved,
    StoreLook,
    Value,
)
from groupkeeper.storage.backends.postgres import tables
from groupkeeper.storage.backends.postgres.link import POOLER, ServerLink
from groupkeeper.storage.backends.postgres.names import escaped, key_of, unescaped
from groupkeeper.storage.backends.postgres.silent_sessions import SilentSessions
from groupkeeper.storage.backends.postgres.url import PostgresUrl
from groupkeeper.storage.backends.postgres.values import (
    logged_of,
    ranges_of,
    value_of,
    write_values,
)
from groupkeeper.storage.base import (
    LeaseEpoch,
    ShardId,
    StorageError,
    StoreIdentity,
    StoreRefused,
    refuse_other_identity,
)
from groupkeeper.storage.leases.lives import NodeLife
from groupkeeper.storage.segment_lines import EventDict, decode_line

FOLD_TIMEOUT_S: Final = 60.0
"""The time limit of a fold. A fold may take longer than an append: a group may have tens of
megabytes. No other group is folded before the fold ends, and a start has to wait for its end."""

DELETIONS_AT_ONCE: Final = 4
"""The largest number of portions of old events that one call deletes. Others wait for the next."""

_T = TypeVar("_T")


class PostgresDriver:
    """One store, which is a schema of a database."""

    max_entry_bytes = 32 * 1024 * 1024
    keeps_events = True

    def __init__(self, url: PostgresUrl, *, append_timeout_ms: int, lease_ttl_ms: int) -> None:
        """Create the driver without a connection.

        The server ends a statement that takes longer than ``append_timeout_ms``. A statement of a
        fold may take longer (``FOLD_TIMEOUT_S``), but it may not wait longer for a lock. The server
        also ends a transaction that has no statement for ``lease_ttl_ms``. If the server does not,
        a process that waits for a lock of this transaction ends it (``SilentSessions``). So a lock
        is held for a limited time.
        """
        self.name = url.name
        self.round_trips: Counter[str] = Counter()
        self._url = url
        self._settings = {
            "search_path": quoted(url.schema),
            "idle_in_transaction_session_timeout": str(lease_ttl_ms),
            "application_name": "groupkeeper",
        }
        self._lock_timeout = str(append_timeout_ms)
        append_s = append_timeout_ms / 1000
        self._appends, self._folds, self._beats, self._reads = self._links = [
            ServerLink(url.name, partial(self._connect, limit_s), limit_s, self.round_trips)
            for limit_s in (append_s, max(append_s, FOLD_TIMEOUT_S), append_s, append_s)
        ]
        self._silent = SilentSessions(self._beats, lease_ttl_ms)

    async def _connect(self, statement_s: float) -> asyncpg.Connection:
        self.round_trips["connect"] += 1
        settings = self._settings | {"statement_timeout": str(round(1000 * statement_s))}
        connection = await asyncpg.connect(
            self._url.dsn, password=self._url.password, server_settings=settings
        )
        try:
            # A database may be configured to confirm a commit before it is on disk.
            found = await connection.fetchrow(
                "SELECT current_setting('search_path') AS search_path, "
                "set_config('lock_timeout', $1, false), CASE "
                "current_setting('synchronous_commit') WHEN 'off' "
                "THEN set_config('synchronous_commit', 'on', false) END",
                self._lock_timeout,
            )
            if found["search_path"] != self._settings["search_path"]:
                raise StoreRefused(f"{self.name}: {POOLER}")
        except BaseException:
            connection.terminate()
            raise
        return connection

    # --- opening and closing ----------------------------------------------------------------------

    async def open(self, identity: StoreIdentity) -> None:
        async def prepare(connection: asyncpg.Connection) -> None:
            await self._lock(connection)
            if not await connection.fetchval(
                "SELECT 1 FROM pg_namespace WHERE nspname = $1", self._url.schema
            ):
                await connection.execute(f"CREATE SCHEMA {quoted(self._url.schema)}")
            await self._prepare_tables(connection, identity)

        try:
            await self._past_silent(self._reads.in_transaction("open", prepare))
        except BaseException:
            await self.close()
            raise

    async def _prepare_tables(
        self, connection: asyncpg.Connection, identity: StoreIdentity
    ) -> None:
        table = await connection.fetchval(
            "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'store'",
            self._url.schema,
        )
        if not table:
            for statement in tables.TABLES:
                await connection.execute(statement)
            rows = [
                ("format", str(tables.FORMAT_VERSION)),
                ("cluster_id", escaped(identity.cluster_id)),
                ("shards", str(identity.shards)),
            ]
            await connection.executemany("INSERT INTO store VALUES ($1, $2)", rows)
        refuse_other_identity(self.name, await self._identity(connection), identity)

    async def _identity(self, connection: asyncpg.Connection) -> StoreIdentity:
        found = dict(await connection.fetch("SELECT key, value FROM store"))
        if int(found["format"]) > tables.FORMAT_VERSION:
            raise StoreRefused(f"{self.name}: was written by a newer groupkeeper")
        return StoreIdentity(unescaped(found["cluster_id"]), int(found["shards"]))

    async def open_to_read(self) -> None:
        async def look(connection: asyncpg.Connection) -> None:
            if not await connection.fetchval(
                "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'store'",
                self._url.schema,
            ):
                raise StoreRefused(f"{self.name}: there is no store")
            await self._identity(connection)

        await self._reads.run("open", look)

    async def _past_silent(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Await a call of ``_reads`` that may wait for the lock of a suspended process."""
        return await self._silent.end_while(self._reads, call)

    async def _lock(self, connection: asyncpg.Connection) -> None:
        """Lock the store, so that only one process at a time creates tables or registers itself
        (begins a life).
        """
        await connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('groupkeeper/' || $1, 0))",
            self._url.schema,
        )

    async def close(self) -> None:
        for link in self._links:
            link.drop()

    # --- lives ------------------------------------------------------------------------------------

    async def begin_life(self, life: NodeLife) -> Begun:
        async def begin(connection: asyncpg.Connection) -> Begun:
            await self._lock(connection)
            others = [NodeLife(*row) for row in await connection.fetch(tables.LIVES)]
            last = await connection.fetchrow(
                "SELECT log_id, next_seq, ts_ms FROM lives WHERE node_id = $1 "
                "ORDER BY number DESC LIMIT 1",
                life.node_id,
            )
            end = JournalEnd(None, 1, 0) if last is None else JournalEnd(*last)
            if not others:
                await connection.execute(
                    "INSERT INTO lives (life_id, node_id, next_seq, log_id, ts_ms) "
                    "VALUES ($1, $2, $3, $4, $5)",
                    life.life_id,
                    life.node_id,
                    end.next_seq,
                    end.log_id,
                    end.ts_ms,
                )
                await connection.execute(
                    "INSERT INTO nodes (node_id, life_id, name, counter) VALUES ($1, $2, $3, $4)",
                    *life,
                )
            return Begun(others, end)

        return await self._past_silent(self._reads.in_transaction("begin_life", begin))

    async def lives(self) -> Sequence[NodeLife]:
        rows = await self._fetch("lives", tables.LIVES)
        return [NodeLife(*row) for row in rows]

    async def beat(self, life_id: str) -> StoreLook:
        row = await self._beats.run(
            "beat", lambda connection: connection.fetchrow(tables.BEAT, life_id)
        )
        if not row["beaten"]:
            raise self._over(life_id)
        owners = json.loads(row["owners"] or "[]")
        return StoreLook(
            [NodeLife(*each) for each in json.loads(row["lives"] or "[]")],
            {shard: OwnedShard(owner, epoch) for shard, owner, epoch in owners},
            row["next_seq"],
        )

    async def end_life(self, life_id: str, counter: int | None) -> bool:
        async def end(connection: asyncpg.Connection) -> bool:
            return bool(await connection.execute(tables.END_LIFE, life_id, counter) == "UPDATE 1")

        return await self._past_silent(self._reads.run("end_life", end))

    async def ended_lives(self) -> Sequence[str]:
        rows = await self._fetch(
            "ended_lives",
            "SELECT life_id FROM lives WHERE is_over AND NOT is_freed ORDER BY number",
        )
        return [row["life_id"] for row in rows]

    async def free(self, life_id: str, ended: str) -> None:
        async def free(connection: asyncpg.Connection) -> None:
            await self._hold_ended(connection, ended)
            if await connection.fetchval("SELECT 1 FROM journal WHERE life_id = $1 LIMIT 1", ended):
                raise StorageError(f"{self.name}: the journal of life {ended} is not folded")
            await connection.execute("UPDATE lives SET is_freed = true WHERE life_id = $1", ended)
            await connection.execute("UPDATE shards SET life_id = NULL WHERE life_id = $1", ended)

        await self._write("free", life_id, self._folds, free)

    async def _fetch(self, call: str, statement: str, *arguments: object) -> list[asyncpg.Record]:
        """Return the rows of one statement that only reads."""

        async def fetch(connection: asyncpg.Connection) -> list[asyncpg.Record]:
            rows: list[asyncpg.Record] = await connection.fetch(statement, *arguments)
            return rows

        return await self._reads.run(call, fetch)

    async def _write(
        self,
        call: str,
        life_id: str,
        link: ServerLink,
        work: Callable[[asyncpg.Connection], Awaitable[_T]],
    ) -> _T:
        """Run a transaction that writes for a life. Raises LifeOver if the life has ended."""

        async def guarded(connection: asyncpg.Connection) -> _T:
            if not await connection.fetchval(tables.GOES_ON, life_id):
                raise self._over(life_id)
            return await work(connection)

        return await link.in_transaction(call, guarded)

    async def _hold_ended(self, connection: asyncpg.Connection, ended: str) -> None:
        """Lock the row of an ended life, so that no other process frees its shards. Raises LifeOver
        if another process has already freed them.
        """
        held = await connection.fetchval(
            "SELECT 1 FROM lives WHERE life_id = $1 AND is_over AND NOT is_freed FOR UPDATE", ended
        )
        if not held:
            raise LifeOver(f"{self.name}: the shards of life {ended} are free already")

    def _over(self, life_id: str) -> LifeOver:
        return LifeOver(f"{self.name}: the life {life_id} has ended")

    # --- shards -----------------------------------------------------------------------------------

    async def acquire(
        self, life_id: str, shards: Collection[ShardId]
    ) -> Mapping[ShardId, LeaseEpoch]:
        async def acquire(connection: asyncpg.Connection) -> Mapping[ShardId, LeaseEpoch]:
            rows = await connection.fetch(tables.ACQUIRE, life_id, [*shards])
            return {row["shard"]: row["epoch"] for row in rows}

        return await self._write("acquire", life_id, self._reads, acquire)

    async def release(self, life_id: str, shards: Collection[ShardId]) -> None:
        async def release(connection: asyncpg.Connection) -> None:
            await connection.execute(
                "UPDATE shards SET life_id = NULL WHERE life_id = $1 AND shard = ANY($2)",
                life_id,
                [*shards],
            )

        await self._write("release", life_id, self._reads, release)

    # --- records ----------------------------------------------------------------------------------

    async def append(self, life_id: str, entry: JournalEntry) -> None:
        done = await self._appends.run(
            "append",
            lambda connection: connection.execute(
                tables.APPEND,
                life_id,
                entry.first_seq,
                entry.event_count,
                entry.log_id,
                entry.ts_ms,
                entry.row,
                entry.payload,
            ),
        )
        if done != "INSERT 0 1":
            raise await self._why_not(life_id, entry)

    async def _why_not(self, life_id: str, entry: JournalEntry) -> StorageError:
        row = await self._appends.run(
            "append",
            lambda connection: connection.fetchrow(
                "SELECT is_over, next_seq FROM lives WHERE life_id = $1", life_id
            ),
        )
        if row is None or row["is_over"]:
            return self._over(life_id)
        return SeqMoved(
            f"{self.name}: the journal ends with seq {row['next_seq'] - 1}, not "
            f"{entry.first_seq - 1}: was the database set back, or a standby promoted?"
        )

    async def journal(self, life_id: str) -> AsyncIterator[JournalEntry]:
        row = 0
        while True:
            rows = await self._fetch(
                "journal",
                "SELECT row, first_seq, event_count, log_id, ts_ms, payload FROM journal "
                "WHERE life_id = $1 AND row > $2 ORDER BY row LIMIT 50",
                life_id,
                row,
            )
            for found in rows:
                yield JournalEntry(*found)
            if not rows:
                return
            row = rows[-1]["row"]

    async def fold(self, life_id: str, journal_of: str, fold: Fold) -> None:
        async def write(connection: asyncpg.Connection) -> None:
            if journal_of != life_id:
                await self._hold_ended(connection, journal_of)
            await write_values(connection, fold.values)
            if fold.events:
                events = fold.events
                await connection.execute(
                    tables.LOG_EVENTS,
                    [event.log_id for event in events],
                    [event.seq for event in events],
                    [event.ts_ms for event in events],
                    [key_of(event.line[0]) for event in events],
                    [event.line[1].decode() for event in events],
                )
            await connection.execute(
                "DELETE FROM journal WHERE life_id = $1 AND row <= $2", journal_of, fold.trim_row
            )

        await self._write("fold", life_id, self._folds, write)

    async def read(self, shards: Collection[ShardId]) -> AsyncIterator[Sequence[Value]]:
        for page, is_group in ((tables.KEYED_PAGE, False), (tables.GROUPS_PAGE, True)):
            for first, last in ranges_of(shards):
                statement, shard, key = page.first, first, ""
                while rows := await self._fetch("read", statement, shard, key, last):
                    yield [value_of(row, is_group) for row in rows]
                    statement, shard, key = page.next, rows[-1]["shard"], rows[-1]["key"]

    async def read_groups(self, groups: Collection[tuple[ShardId, str]]) -> Sequence[Value]:
        rows = await self._fetch(
            "read_groups",
            "SELECT shard, key, group_id AS name, state FROM groups "
            "JOIN unnest($1::integer[], $2::text[]) AS wanted (s, k) ON shard = s AND key = k",
            [shard for shard, _ in groups],
            [key_of(name) for _, name in groups],
        )
        return [value_of(row, is_group=True) for row in rows]

    # --- leftovers --------------------------------------------------------------------------------

    async def leftovers(self) -> Sequence[str]:
        rows = await self._fetch("leftovers", tables.OLD_LIVES)
        return [f"rows of ended lives of node {row['node_id']}: {row['lives']}" for row in rows]

    async def remove_leftovers(self, life_id: str) -> None:
        async def remove(connection: asyncpg.Connection) -> None:
            await connection.execute(tables.DELETE_OLD_LIVES)

        await self._write("remove_leftovers", life_id, self._folds, remove)

    # --- events -----------------------------------------------------------------------------------

    async def delete_events(self, life_id: str, before_ms: int) -> None:
        """Delete old events, at most ``DELETIONS_AT_ONCE`` portions. A day may have so many events
        that a fold could not wait for the deletion of all of them.
        """

        async def delete(connection: asyncpg.Connection) -> bool:
            done = await connection.execute(tables.DELETE_EVENTS, before_ms)
            return bool(done == f"DELETE {tables.DELETED_AT_ONCE}")

        for _ in range(DELETIONS_AT_ONCE):
            if not await self._write("delete_events", life_id, self._folds, delete):
                return

    async def event_logs(self) -> Sequence[LogSpan]:
        return [
            LogSpan(
                row["log_id"],
                decode_line(row["event"].encode()).get("previous_log_id"),
                row["first_seq"],
                row["last_seq"],
                row["last_ts_ms"],
            )
            for row in await self._fetch("event_logs", tables.EVENT_LOGS)
        ]

    async def events(self, log_id: str, after_seq: int) -> Sequence[LoggedEvent]:
        return [
            logged_of(row) for row in await self._fetch("events", tables.EVENTS, log_id, after_seq)
        ]

    async def trim_events(self, life_id: str, sealed: Mapping[str, int]) -> int:
        return 0

    async def ends(self) -> Mapping[int, JournalEnd]:
        rows = await self._fetch("ends", tables.ENDS)
        return {
            row["node_id"]: JournalEnd(row["log_id"], row["next_seq"], row["ts_ms"]) for row in rows
        }

    async def seal_notes(self) -> Mapping[int, bytes]:
        return {
            int(row["key"].partition("/")[2]): row["value"].encode()
            for row in await self._fetch("seal_notes", tables.SEAL_NOTES)
        }

    async def write_seal_note(self, life_id: str, node_id: int, note: bytes) -> None:
        async def write(connection: asyncpg.Connection) -> None:
            await connection.execute(tables.WRITE_SEAL_NOTE, f"sealed/{node_id}", note.decode())

        await self._write("write_seal_note", life_id, self._folds, write)

    async def history(self, group_id: str, since_ms: int) -> AsyncIterator[EventDict]:
        seq, log_id = 0, ""
        while True:
            rows = await self._fetch(
                "history",
                "SELECT seq, log_id, event FROM event_log WHERE key = $1 AND ts_ms >= $2 "
                "AND seq >= $3 AND (seq, log_id) > ($3, $4) ORDER BY seq, log_id LIMIT 200",
                key_of(group_id),
                since_ms,
                seq,
                log_id,
            )
            for row in rows:
                yield decode_line(row["event"].encode())
            if not rows:
                return
            seq, log_id = rows[-1]["seq"], rows[-1]["log_id"]


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
