"""A reader of the tables that has none of our code, and looks all the time while jobs run and die.

It knows what docs/reference/tables.md says: the pointer names the folders of each day. It reads
them with pyarrow, and through the SQL that each run writes for DuckDB.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import pyarrow.parquet as pq


class Day(NamedTuple):
    """The commits of a day, as three tables count them."""

    silver: int
    rates: int
    groups: int


Days = dict[str, Day]

PAUSE_S: Final = 0.1
"""Between two looks. Without it, the reader would need as much of the processor as the jobs."""

_COUNTS = """
SELECT CAST(d.dt AS VARCHAR),
  (SELECT count(DISTINCT (store, seq)) FROM silver_commit_deltas s WHERE s.dt = d.dt),
  (SELECT sum(commits) FROM gold_commit_rate_1m r WHERE r.dt = d.dt),
  (SELECT sum(commits) FROM gold_group_daily g WHERE g.dt = d.dt)
FROM publications d WHERE d.state <> 'held back'
"""


def by_pointer(root: Path) -> Days:
    """Return the published days, through ``published.json`` and pyarrow."""
    pointer = root / "published.json"
    if not pointer.exists():
        return {}
    found = {}
    for day in json.loads(pointer.read_bytes())["days"]:
        if day["state"] == "held back":
            continue
        folders = day["tables"]
        deltas, rates, groups = (
            [] if name not in folders else _rows(root / folders[name], column)
            for name, column in (
                ("silver/commit_deltas", "seq"),
                ("gold/commit_rate_1m", "commits"),
                ("gold/group_daily", "commits"),
            )
        )
        counts = (sum(count for _, count in rows) for rows in (rates, groups))
        found[day["dt"]] = Day(len(set(deltas)), *counts)
    return found


def _rows(folder: Path, column: str) -> list[tuple[str, int]]:
    """Return the store and one column of each row."""
    assert folder.is_dir(), f"{folder} is named and not there"
    tables = [pq.read_table(file, columns=["store", column]) for file in folder.glob("*.parquet")]
    return [
        pair
        for table in tables
        for pair in zip(table["store"].to_pylist(), table[column].to_pylist(), strict=True)
    ]


def by_views(root: Path) -> Days:
    """Return the published days, through the file of SQL and DuckDB."""
    views = root / "views" / "duckdb.sql"
    if not views.exists():
        return {}
    # a pool of threads for each connection would cost more than the query
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(views.read_text())
        rows = connection.execute(_COUNTS).fetchall()
    return {day: Day(*(int(count or 0) for count in counts)) for day, *counts in rows}


@dataclass
class SecondReader:
    """Looks, and writes down what a reader must never see."""

    root: Path
    seen: dict[str, Days] = field(default_factory=dict)
    """The last look of each way."""
    looks: int = 0
    wrong: list[str] = field(default_factory=list)

    def look(self) -> None:
        for way in (by_pointer, by_views):
            self._compare(way.__name__, way(self.root))
        self.looks += 1

    def _compare(self, way: str, days: Days) -> None:
        for day, counts in days.items():
            if len(set(counts)) > 1:
                self.wrong.append(f"{way}: tables of {day} are of two versions: {counts}")
        for day, before in self.seen.get(way, {}).items():
            if day not in days:
                self.wrong.append(f"{way}: {day} has disappeared")
            elif days[day] < before:
                self.wrong.append(f"{way}: {day} went back from {before} to {days[day]}")
        self.seen[way] = days


class AlwaysLooking(threading.Thread):
    """A second reader in a thread of its own, until the block ends."""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self.reader = SecondReader(root)
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            while not self._ended.wait(PAUSE_S):
                self.reader.look()
        except (AssertionError, OSError, ValueError, duckdb.Error) as error:
            self.reader.wrong.append(repr(error))  # something was named and not there

    def __enter__(self) -> SecondReader:
        self.start()
        return self.reader

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
