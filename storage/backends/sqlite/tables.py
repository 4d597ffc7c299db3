"""The tables of the SQLite backend, their SQL and migrations, and the checks of a file that was
just opened.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from groupkeeper.storage.backends.sqlite.complete import APPLICATION_ID, COMPLETE
from groupkeeper.storage.base import StoreBusy, StoreIdentity, StoreRefused, refuse_other_identity
from groupkeeper.storage.codec.events import Stamp
from groupkeeper.storage.codec.records import encode_payload
from groupkeeper.storage.file_lock import connect_reading

Migration: TypeAlias = Sequence[str]
"""The statements that change the schema to the next version, in one transaction."""

MIGRATIONS: Final[tuple[Migration, ...]] = (
    (
        # The identity of the store (cluster_id, shards), and whether it is open (running).
        "CREATE TABLE store (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID",
        # All shards have one queue of appends, so one lease. An append with another epoch is
        # refused.
        """CREATE TABLE lease (
            id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, owner TEXT NOT NULL
        )""",
        "INSERT INTO lease VALUES (1, 0, '')",
        # One row for each append; payload: storage/codec/records.py, as ``packed`` stores it. The
        # newest row is never deleted, because the next row and seq are computed from it.
        """CREATE TABLE log (
            "row" INTEGER PRIMARY KEY, first_seq INTEGER NOT NULL, count INTEGER NOT NULL,
            payload TEXT NOT NULL
        )""",
        # The folded state: each group as it was after a row of the log, which is fold.folded_row or
        # a later one. The head of a payload has folded_row too; the larger of the two is valid.
        """CREATE TABLE groups (
            shard INTEGER NOT NULL, group_id TEXT NOT NULL, state TEXT NOT NULL,
            PRIMARY KEY (shard, group_id)
        )""",
        """CREATE TABLE keyed (
            shard INTEGER NOT NULL, key TEXT NOT NULL, record TEXT NOT NULL,
            PRIMARY KEY (shard, key)
        )""",
        """CREATE TABLE fold (
            id INTEGER PRIMARY KEY CHECK (id = 1), folded_row INTEGER NOT NULL
        )""",
        "INSERT INTO fold VALUES (1, 0)",
        # A view for operators. It shows the state after the last fold, so newer commits may be
        # missing.
        """CREATE VIEW offsets AS
            SELECT g.shard, g.group_id, topic.key AS topic,
                   CAST(part.key AS INTEGER) AS "partition",
                   json_extract(part.value, '$[0]') AS committed_offset,
                   json_extract(part.value, '$[1]') AS leader_epoch,
                   json_extract(part.value, '$[2]') AS metadata,
                   json_extract(part.value, '$[3]') AS commit_time_ms,
                   json_extract(part.value, '$[4]') AS expire_time_ms,
                   json_extract(part.value, '$[5]') AS topic_id
            FROM groups AS g, json_each(g.state, '$.offsets') AS topic,
                 json_each(topic.value) AS part""",
    ),
    (
        # The position up to which events are sealed (event_log/sealing/settling). Sealed rows may
        # be deleted.
        """CREATE TABLE sealed (
            id INTEGER PRIMARY KEY CHECK (id = 1), sealed_seq INTEGER NOT NULL
        )""",
        "INSERT INTO sealed VALUES (1, 0)",
        # The logs that this store has written. Needed because stores may share a directory, and old
        # rows are deleted.
        "CREATE TABLE sealed_logs (log_id TEXT PRIMARY KEY) WITHOUT ROWID",
    ),
    (
        # A large group is stored in parts, so that no row is large. The group's row here has only
        # its metadata, and the number of the valid set of parts. The number is 0 if the group is
        # not split.
        "ALTER TABLE groups ADD COLUMN part_set INTEGER NOT NULL DEFAULT 0",
        """CREATE TABLE group_parts (
            shard INTEGER NOT NULL, group_id TEXT NOT NULL, part_set INTEGER NOT NULL,
            part INTEGER NOT NULL, state TEXT NOT NULL,
            PRIMARY KEY (shard, group_id, part_set, part)
        )""",
        "DROP VIEW offsets",
        """CREATE VIEW offsets AS
            SELECT g.shard, g.group_id, topic.key AS topic,
                   CAST(part.key AS INTEGER) AS "partition",
                   json_extract(part.value, '$[0]') AS committed_offset,
                   json_extract(part.value, '$[1]') AS leader_epoch,
                   json_extract(part.value, '$[2]') AS metadata,
                   json_extract(part.value, '$[3]') AS commit_time_ms,
                   json_extract(part.value, '$[4]') AS expire_time_ms,
                   json_extract(part.value, '$[5]') AS topic_id
            FROM (SELECT shard, group_id, state FROM groups
                  UNION ALL
                  SELECT shard, group_id, p.state
                  FROM group_parts AS p JOIN groups USING (shard, group_id, part_set)) AS g,
                 json_each(g.state, '$.offsets') AS topic, json_each(topic.value) AS part""",
    ),
    # A group may be a consumer group, and rows have format version 3. The tables are the same, but
    # older versions must refuse the file: they would load such groups without their members.
    (),
    # Large payloads of the log are compressed (``packed``), which older versions cannot read.
    (),
)

# --- the statements of the hot path --------------------------------------------------------------

APPEND: Final = """INSERT INTO log ("row", first_seq, count, payload)
    SELECT last."row" + 1, last.first_seq + last.count, ?, ?
    FROM (SELECT "row", first_seq, count FROM log ORDER BY "row" DESC LIMIT 1) AS last, lease
    WHERE lease.epoch = ?"""
"""The SQL of an append. This one statement is a whole transaction. It computes row and seq from the
last row and checks the epoch. Parameters: count, packed payload, epoch."""

_SAVE_GROUPS = """INSERT INTO groups (shard, group_id, state)
    SELECT column1, column2, CAST(column3 AS TEXT) FROM (VALUES {rows})
    WHERE (SELECT epoch FROM lease) = ?
    ON CONFLICT (shard, group_id) DO UPDATE SET state = excluded.state, part_set = 0"""

_REMOVE_GROUPS = """DELETE FROM groups
    WHERE (shard, group_id) IN (VALUES {rows}) AND (SELECT epoch FROM lease) = ?"""

REMOVE_STALE_PARTS: Final = """DELETE FROM group_parts WHERE rowid IN (
        SELECT rowid FROM group_parts WHERE shard = ? AND group_id = ? AND part_set IS NOT
            (SELECT part_set FROM groups WHERE shard = ? AND group_id = ?)
        LIMIT ?)
    AND (SELECT epoch FROM lease) = ?"""
"""SQL that deletes some parts of a group which are not in the valid set of parts. If the group has
no row, no part is valid. Parameters: shard, group_id, shard, group_id, the number of parts, epoch.
"""

SAVE_PART: Final = """INSERT INTO group_parts (shard, group_id, part_set, part, state)
    SELECT ?1, ?2, (?3 = 0) + coalesce(
        (SELECT max(part_set) FROM group_parts WHERE shard = ?1 AND group_id = ?2), 0),
        ?3, CAST(?4 AS TEXT)
    WHERE (SELECT epoch FROM lease) = ?5"""
"""SQL that writes a part of a group. Part 0 begins a new set of parts. Parts of the previous set
may still exist. Parameters: shard, group_id, part, state, epoch."""

END_PARTS: Final = """INSERT INTO groups (shard, group_id, state, part_set)
    SELECT ?1, ?2, CAST(?3 AS TEXT),
        (SELECT max(part_set) FROM group_parts WHERE shard = ?1 AND group_id = ?2)
    WHERE (SELECT epoch FROM lease) = ?4
    ON CONFLICT (shard, group_id)
    DO UPDATE SET state = excluded.state, part_set = excluded.part_set"""
"""SQL that makes the last set of parts of a group the valid one. Parameters: shard, group_id,
state, epoch."""

_SAVE_KEYED = """INSERT INTO keyed (shard, key, record)
    SELECT column1, column2, CAST(column3 AS TEXT) FROM (VALUES {rows})
    WHERE (SELECT epoch FROM lease) = ?
    ON CONFLICT (shard, key) DO UPDATE SET record = excluded.record"""

_REMOVE_KEYED = """DELETE FROM keyed
    WHERE (shard, key) IN (VALUES {rows}) AND (SELECT epoch FROM lease) = ?"""

SAVE_FOLDED_ROW: Final = """UPDATE fold SET folded_row = ?
    WHERE folded_row < ? AND (SELECT epoch FROM lease) = ?"""


def save_groups(count: int) -> str:
    """Return the SQL that writes ``count`` groups.

    Its parameters are shard, group id and state of each group, then the lease epoch.
    """
    return _SAVE_GROUPS.format(rows=_rows("(?,?,?)", count))


def remove_groups(count: int) -> str:
    """Return the SQL that deletes ``count`` groups.

    Its parameters are shard and id of each group, then the lease epoch.
    """
    return _REMOVE_GROUPS.format(rows=_rows("(?,?)", count))


def save_keyed(count: int) -> str:
    """Return the SQL that writes ``count`` keyed records.

    Its parameters are shard, key and content of each record, then the lease epoch.
    """
    return _SAVE_KEYED.format(rows=_rows("(?,?,?)", count))


def remove_keyed(count: int) -> str:
    """Return the SQL that deletes ``count`` keyed records.

    Its parameters are shard and key of each record, then the lease epoch.
    """
    return _REMOVE_KEYED.format(rows=_rows("(?,?)", count))


def _rows(row: str, count: int) -> str:
    return ",".join([row] * count)


# --- connections ---------------------------------------------------------------------------------

Connect: TypeAlias = Callable[[Path, float], sqlite3.Connection]
"""A function that opens the writer's connection. Its arguments are the path, and the busy timeout
in seconds. Tests pass a function that kills the process inside a statement."""


def connect_writer(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    """Open a connection on which every statement is its own transaction. Only one thread may use
    it.
    """
    return sqlite3.connect(
        path,
        timeout=busy_timeout_s,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def connect_reader(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    """Open a read-only connection. Any process of the same user may call this at any time."""
    return connect_reading(
        path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )


# --- opening -------------------------------------------------------------------------------------

JOURNAL_SIZE_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""The size to which SQLite truncates the WAL after a checkpoint. A long read makes the WAL grow
beyond it."""


def refuse_other(connection: sqlite3.Connection, path: Path) -> bool:
    """Raise StoreRefused if the file is not ours. Return True if it is empty."""
    try:
        application_id = _pragma(connection, "application_id")
        is_empty = not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_NOTADB:
            raise
        raise StoreRefused(f"{path}: is not a SQLite database") from error
    if application_id != APPLICATION_ID and not is_empty:
        raise StoreRefused(f"{path}: is a SQLite database, but not one of groupkeeper")
    return is_empty


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Configure the writer's connection. Raises StoreRefused if the file is not ours."""
    is_empty = refuse_other(connection, path)
    if has_mark(connection):
        # The mark of another file is in the WAL. The WAL is copied when its last user is gone.
        raise StoreBusy(
            f"{path}: SQLite has written a backup into its write-ahead log, which another process "
            f"still uses (fuser {path} names it); end that process"
        )
    refuse_newer(connection, path, len(MIGRATIONS))
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreRefused(f"{path}: SQLite cannot use a write-ahead log there (got {mode!r})")
    connection.execute("PRAGMA synchronous = FULL")
    # Nobody would notice a failed sync in a checkpoint that SQLite makes itself (``checkpoints``).
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_SIZE_LIMIT_BYTES}")
    # Debian's SQLite fills deleted rows with zeros, and so writes every page of a sealed row twice.
    connection.execute("PRAGMA secure_delete = OFF").fetchall()
    if is_empty:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def has_mark(connection: sqlite3.Connection) -> bool:
    """Return True if the database, with its write-ahead log, has the mark of a complete file."""
    return _pragma(connection, "user_version") >= COMPLETE


class SyncIsOff(sqlite3.OperationalError):
    """Writes with this connection do not wait for the disk any more. An append would be
    acknowledged before it is durable.
    """


@contextmanager
def without_sync(connection: sqlite3.Connection) -> Iterator[None]:
    """Execute the statements of the block without waiting for the disk. Their writes become durable
    with the next append.

    A sync here would delay the next append. The order of writes is kept, because SQLite syncs its
    write-ahead log as a whole. So a power cut may lose these writes, but no earlier one.

    Raises SyncIsOff if the connection cannot wait for the disk again. Then nothing more may be
    written with it.
    """
    try:
        connection.execute("PRAGMA synchronous = NORMAL")  # it may fail and take effect
        yield
    finally:
        _sync_again(connection)


def _sync_again(connection: sqlite3.Connection) -> None:
    """Let writes wait for the disk again. Raises SyncIsOff if that is impossible."""
    for is_last in (False, False, True):
        try:
            connection.execute("PRAGMA synchronous = FULL")
            return
        except sqlite3.Error as error:
            if is_last:
                raise SyncIsOff(str(error)) from error


def refuse_newer(connection: sqlite3.Connection, path: Path, known: int) -> None:
    """Raise StoreRefused if the schema version is newer than ``known``."""
    refuse_newer_version(_pragma(connection, "user_version"), path, known)


def refuse_newer_version(found: int, path: Path, known: int) -> None:
    """Raise StoreRefused if this schema version is newer than ``known``."""
    if found > known:
        raise StoreRefused(
            f"{path}: was written by a newer groupkeeper (schema version {found}, this one knows "
            f"{known}); use that version, or another file"
        )


def migrate(
    connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration] = MIGRATIONS
) -> None:
    """Migrate the tables to the newest schema version, with one transaction for each version."""
    refuse_newer(connection, path, len(migrations))
    for version in range(_pragma(connection, "user_version"), len(migrations)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in migrations[version]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def identify(
    connection: sqlite3.Connection, path: Path, identity: StoreIdentity, stamp: Stamp
) -> bool:
    """Write the identity into a new store, or check that of an existing one. Mark the store as
    running.

    Returns True if the last user did not close the store. Raises StoreRefused for another identity.
    """
    found = dict(connection.execute("SELECT key, value FROM store").fetchall())
    if not found:
        # Row 0 contains no append. Row 1 and seq 1 are computed from it.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO store VALUES ('shards', ?)", (identity.shards,))
        connection.execute("INSERT INTO store VALUES ('cluster_id', ?)", (identity.cluster_id,))
        connection.execute("INSERT INTO store VALUES ('running', 1)")
        head = encode_payload(stamp, 0, [])
        connection.execute("INSERT INTO log VALUES (0, 1, 0, CAST(? AS TEXT))", (head,))
        connection.execute("COMMIT")
        return False
    refuse_other_identity(str(path), StoreIdentity(found["cluster_id"], found["shards"]), identity)
    connection.execute("UPDATE store SET value = 1 WHERE key = 'running'")
    return bool(found["running"])


def file_bytes(path: Path) -> int:
    """Return the size of a file; 0 if it does not exist."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
