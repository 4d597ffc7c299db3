"""Copies of gold in other formats: each day once, and the same after any repetition."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.cli.pipeline.options import first_and_last
from groupkeeper.pipeline.export.delta import DeltaTarget
from groupkeeper.pipeline.export.export import NothingToExport, export
from groupkeeper.pipeline.export.iceberg import IcebergTarget

FIRST, SECOND = date(2026, 11, 21), date(2026, 11, 22)
CHANGES = pa.list_(pa.struct([("topic", pa.string()), ("from", pa.int64())]))
SCHEMA = pa.schema([("group", pa.string()), ("count", pa.int64()), ("changes", CHANGES)])


class Tables:
    """Tables as a run leaves them: folders of versions, and the pointer."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.days: dict[date, str] = {}
        self.version = 0

    def write(self, day: date, *counts: int, schema: pa.Schema = SCHEMA) -> None:
        self.version += 1
        folder = f"gold/audit/dt={day}/v={self.version}"
        (self.root / folder).mkdir(parents=True)
        rows = [{"group": "g", "count": n, "changes": [{"topic": "t", "from": n}]} for n in counts]
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), self.root / folder / "a.parquet")
        self.days[day] = folder

    def switch(self) -> None:
        """Replace the pointer."""
        note = {"state": "published", "fingerprint": "", "events": 1, "missing": ""}
        days = [
            {"dt": str(day), "computation": 2, "tables": {"gold/audit": folder}, **note}
            for day, folder in self.days.items()
        ]
        pointer = {"format": 1, "version": self.version, "days": days}
        text = json.dumps({**pointer, "accepted": [], "replaced": []})
        (self.root / "published.json").write_text(text)


@pytest.fixture
def tables(tmp_path):
    tables = Tables(tmp_path / "tables")
    tables.write(FIRST, 1)
    tables.write(SECOND, 2, 3)
    tables.switch()
    return tables


class Copy:
    """A copy in one format, as its own reader sees it."""

    def __init__(self, kind: str, to: Path) -> None:
        self.kind, self.to = kind, to

    def target(self):
        return DeltaTarget(self.to) if self.kind == "delta" else IcebergTarget(self.to)

    def read(self) -> pa.Table:
        if self.kind == "delta":
            return DeltaTable(str(self.to / "audit")).to_pyarrow_table()
        catalog = SqlCatalog("groupkeeper", uri=f"sqlite:///{self.to}/catalog.db")
        try:
            return catalog.load_table("groupkeeper.audit").scan().to_arrow()
        finally:
            catalog.close()

    def counts(self) -> list[tuple[date, int]]:
        return sorted((row["dt"], row["count"]) for row in self.read().to_pylist())


@pytest.fixture(params=["delta", "iceberg"])
def copy(request, tmp_path):
    return Copy(request.param, tmp_path / "copy")


def test_each_changed_day_is_copied_once(tables, copy):
    assert export(tables.root, copy.to, copy.target()) == 2
    assert copy.counts() == [(FIRST, 1), (SECOND, 2), (SECOND, 3)]
    assert export(tables.root, copy.to, copy.target()) == 0
    tables.write(SECOND, 4)
    tables.switch()
    assert export(tables.root, copy.to, copy.target()) == 1
    assert copy.counts() == [(FIRST, 1), (SECOND, 4)]
    assert copy.read().to_pylist()[0]["changes"][0]["topic"] == "t"


def test_an_export_that_was_interrupted_is_repeated_without_doubles(tables, copy):
    export(tables.root, copy.to, copy.target())
    (copy.to / "_exported.json").unlink()  # killed after the copy, before the note
    assert export(tables.root, copy.to, copy.target()) == 2
    assert copy.counts() == [(FIRST, 1), (SECOND, 2), (SECOND, 3)]


def test_a_day_without_rows_any_more_is_removed(tables, copy):
    export(tables.root, copy.to, copy.target())
    del tables.days[FIRST]
    tables.switch()
    assert export(tables.root, copy.to, copy.target()) == 1
    assert copy.counts() == [(SECOND, 2), (SECOND, 3)]
    assert export(tables.root, copy.to, copy.target()) == 0


def test_only_the_days_asked_for_are_copied(tables, copy):
    assert export(tables.root, copy.to, copy.target(), (SECOND, SECOND)) == 1
    assert {day for day, _ in copy.counts()} == {SECOND}


def test_a_column_of_a_newer_version_is_added(tables, copy):
    export(tables.root, copy.to, copy.target())
    tables.write(SECOND, 5, schema=SCHEMA.append(pa.field("more", pa.string())))
    tables.switch()
    export(tables.root, copy.to, copy.target())
    assert "more" in copy.read().column_names
    assert copy.counts() == [(FIRST, 1), (SECOND, 5)]


def test_without_tables_the_message_says_what_makes_them(tmp_path, copy):
    with pytest.raises(NothingToExport, match="groupkeeper pipeline run"):
        export(tmp_path, copy.to, copy.target())


def test_the_command_copies_and_says_how_much(tables, tmp_path):
    command = ["pipeline", "export", "--tables", str(tables.root), "--to", str(tmp_path / "copy")]
    done = CliRunner().invoke(app, [*command, "--format", "delta"])
    assert done.exit_code == 0
    assert "2 days of tables copied" in done.output
    again = CliRunner().invoke(app, [*command, "--format", "delta"])
    assert (again.exit_code, "0 days" in again.output) == (0, True)
    assert CliRunner().invoke(app, [*command[:2], "--to", "x", "--format", "delta"]).exit_code == 4


@pytest.mark.parametrize("text", ["yesterday", "2026-11-22..2026-11-21", "2026-11-21.."[:-1]])
def test_days_that_are_none_are_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011  of the standard library, or ours
        first_and_last(text)


def test_days_are_one_or_a_first_and_a_last():
    assert first_and_last("2026-11-21") == (FIRST, FIRST)
    assert first_and_last("2026-11-21..2026-11-22") == (FIRST, SECOND)
    assert first_and_last(None) == (date.min, date.max)
