"""A store of which a row cannot be read is refused, by the name of the row: it will be the same
row next time, and to go on without it would take back what was acknowledged.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.embed.messages import (
    OffsetCommitData,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.codec.records import FORMAT_VERSION
from tests.helpers.runtime.coordinator import a_config

COPY = """INSERT INTO log (first_seq, count, payload)
    SELECT (SELECT max(first_seq + count) FROM log), 0, {payload} FROM log WHERE "row" = {row}"""
FROM_LATER = '{"record":"of_a_later_version","group_id":"g"}'
UNREADABLE = {
    "a kind of record from later": 'replace(payload, \'"record":"\', \'"record":"later_\')',
    "a format from later": f"replace(payload, '\"version\":{FORMAT_VERSION}', '\"version\":99')",
    "half of it": "substr(payload, 1, length(payload) / 2)",
    "not UTF-8": "CAST(x'7b22ff22' AS TEXT)",
    "half of a compressed one": "substr(CAST(payload AS BLOB), 1, length(payload) / 2)",
    "nested too deeply": "printf('%.*c', 100000, '[')",
}


_HAS_RECORDS = "payload LIKE '%\"record\":%'"


async def run(path: Path, *, commits: bool = False) -> None:
    """Start and stop a coordinator; its end folds the groups "g" and "large"."""
    storage = SqliteOffsetStorage(path, part_bytes=4_096)
    coordinator = GroupCoordinator(storage, a_config(), {"orders": 1_000})
    try:
        async with asyncio.timeout(30):
            await coordinator.start()
            if commits:
                for group_id, partitions in (("g", 1), ("large", 1_000)):
                    offsets = {number: OffsetCommitData(7) for number in range(partitions)}
                    request = OffsetCommitRequest(group_id=group_id, offsets={"orders": offsets})
                    (await coordinator.commit_offsets(request)).raise_for_error()
    finally:
        await coordinator.stop()


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    path = tmp_path / "groups.db"
    await run(path, commits=True)
    return path


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0


async def committed(path: Path) -> dict[str, list[int]]:
    """The committed offsets of both groups, after a start."""
    coordinator = GroupCoordinator(SqliteOffsetStorage(path), a_config(), {"orders": 1_000})
    try:
        async with asyncio.timeout(30):
            await coordinator.start()
            found = {}
            for group_id in ("g", "large"):
                fetched = await coordinator.fetch_offsets(OffsetFetchRequest(group_id=group_id))
                topic = fetched.offsets["orders"]
                found[group_id] = [topic[number].offset for number in sorted(topic)]
            return found
    finally:
        await coordinator.stop()


async def refusal(path: Path) -> str:
    """Why a start refuses the store: at once, and every time."""
    with pytest.raises(StoreRefused) as first:
        await run(path)
    with pytest.raises(StoreRefused) as again:
        await run(path)
    assert str(first.value) == str(again.value)
    assert str(first.value).startswith(f"{path}: ")
    assert "run that version, or restore the last backup" in str(first.value)
    return str(first.value)


@pytest.mark.parametrize("damage", UNREADABLE)
@pytest.mark.parametrize("is_last", [True, False])
async def test_a_row_of_the_log_that_cannot_be_read_is_named(path, damage, is_last):
    is_wanted = "typeof(payload) = 'blob'" if "compressed" in damage else _HAS_RECORDS
    with closing(sqlite3.connect(path)) as connection:
        ((good, last),) = connection.execute(
            f'SELECT max("row") FILTER (WHERE {is_wanted}), max("row") FROM log'
        ).fetchall()
    assert good is not None
    change(path, COPY.format(payload=UNREADABLE[damage], row=good))
    if not is_last:
        change(path, COPY.format(payload="payload", row=good))
    assert f"row {last + 1} of table log: a log row" in await refusal(path)


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        (f"UPDATE groups SET state = '{FROM_LATER}' WHERE group_id = 'g'", "'g' in table groups"),
        (
            f"UPDATE group_parts SET state = '{FROM_LATER}' WHERE part = 1",
            "'large' in table group_parts",
        ),
        (f"UPDATE keyed SET record = '{FROM_LATER}'", "of table keyed"),
    ],
)
async def test_a_folded_row_that_cannot_be_read_is_named(path, statement, where):
    change(path, statement)
    assert where in await refusal(path)


NOT_UTF_8 = "CAST(x'67ff' AS TEXT)"


@pytest.mark.parametrize(
    ("table", "name"), [("groups", "group_id"), ("group_parts", "group_id"), ("keyed", "key")]
)
async def test_a_name_that_is_not_utf_8_is_told_and_written_again(path, table, name):
    """The rows were of no group any more: a load failed for ever, or left their offsets out."""
    with closing(sqlite3.connect(path)) as connection:
        ((row, right),) = connection.execute(
            f"SELECT rowid, {name} FROM {table} ORDER BY rowid DESC LIMIT 1"
        ).fetchall()
    change(path, f"UPDATE {table} SET {name} = {NOT_UTF_8} WHERE rowid = {row}")
    with capture_logs() as logs:
        assert await committed(path) == {"g": [7], "large": [7] * 1_000}
    (told,) = [line["error"] for line in logs if line["event"] == "load_failed"]
    assert told.startswith(f"{path}: row {row} of table {table}: the name b'g\\xff' is not UTF-8;")
    assert "each row got the name that its record holds" in told
    with closing(sqlite3.connect(path)) as connection:
        where = f"{name} = ?"
        assert connection.execute(f"SELECT 1 FROM {table} WHERE {where}", (right,)).fetchall()


async def test_a_row_whose_name_was_damaged_never_replaces_a_later_one(path):
    change(
        path,
        f"INSERT INTO groups (shard, group_id, state) SELECT shard, {NOT_UTF_8}, "
        "replace(state, '[7,', '[3,') FROM groups WHERE group_id = 'g'",
    )
    assert await committed(path) == {"g": [7], "large": [7] * 1_000}
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM groups").fetchall() == [(2,)]


@pytest.mark.parametrize("table", ["groups", "group_parts"])
async def test_a_row_without_a_readable_name_or_record_is_named(path, table):
    change(
        path,
        f"UPDATE {table} SET group_id = {NOT_UTF_8}, state = '{{' "
        f"WHERE rowid = (SELECT min(rowid) FROM {table})",
    )
    with pytest.raises(StoreRefused, match=rf"groups.db: row \d+ of table {table}: its name is "):
        await run(path)
