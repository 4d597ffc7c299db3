"""The tables by name for programs without our code: DuckDB, and a metastore."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import duckdb
import pytest

from groupkeeper.pipeline.tables.columns import VIEWS
from groupkeeper.pipeline.tables.pointer import PUBLISHED, DayNote, Pointer
from groupkeeper.pipeline.tables.sql_views import duckdb_views, external_tables
from groupkeeper.pipeline.tables.versions import read_pointer
from tests.pipeline.conftest import Site, a_site
from tests.pipeline.test_hard_days import two_days

DAY = date(2026, 11, 21)


@pytest.fixture(scope="module")
def site(spark, tmp_path_factory) -> Site:
    # a quote in its path
    site = a_site(spark, tmp_path_factory.mktemp("day's"))
    site.seal(two_days())
    site.run()
    return site


def of(site: Site, view: str) -> list[tuple]:
    """The rows of a view as Spark has them."""
    table, schema = VIEWS[view]
    rows = site.valid(table)
    return [] if rows is None else rows.select(schema.names).collect()


def test_duckdb_reads_every_table_as_spark_does(site):
    with duckdb.connect() as connection:
        connection.execute(Path(site.lake.path("views/duckdb.sql")).read_text())
        for view in VIEWS:
            found = connection.sql(f"SELECT * FROM {view}").fetchall()
            expected = [row.asDict(recursive=True).values() for row in of(site, view)]
            assert sorted(map(plain, found)) == sorted(map(plain, expected)), view
        assert any(of(site, view) for view in VIEWS)
        days = connection.sql("SELECT dt, state, events FROM publications").fetchall()
    notes = read_pointer(site.spark, site.lake).days
    assert days == [(day, PUBLISHED, note.events) for day, note in notes.items()]
    assert len(days) == 3


def plain(row) -> str:
    return repr(tuple(row))


def test_a_table_without_rows_has_its_columns_in_duckdb(tmp_path):
    with duckdb.connect() as connection:
        connection.execute(duckdb_views(Pointer(1), str(tmp_path)))
        for view, (_, schema) in VIEWS.items():
            found = connection.sql(f"SELECT * FROM {view}")
            assert (found.columns, found.fetchall()) == (schema.names, [])
        assert connection.sql("SELECT * FROM publications").fetchall() == []


def in_spark(text: str) -> str:
    return text.replace("CREATE EXTERNAL", "CREATE").replace(
        "PARTITIONED BY (`dt` date) STORED AS PARQUET",
        "USING PARQUET PARTITIONED BY (`dt` date)",
    )


def test_external_tables_follow_the_pointer(site):
    """Through Spark's own catalog: only a metastore of Hive knows STORED AS."""
    session = site.spark.newSession()  # temporary views of other tests would hide the tables
    text = Path(site.lake.path("views/external_tables.sql")).read_text()
    try:
        for _ in range(2):  # again, as after each run
            for statement in in_spark(text).rstrip(";\n").split(";\n"):
                session.sql(statement)
        for view in VIEWS:
            names = VIEWS[view][1].names
            found = session.table(view).select(names).collect()
            assert sorted(map(repr, found)) == sorted(map(repr, of(site, view))), view
        assert session.table("publications").count() == 3
    finally:
        session.sql("DROP VIEW IF EXISTS publications")
        for view in VIEWS:
            session.sql(f"DROP TABLE IF EXISTS {view}")


def test_a_partition_moves_and_none_is_dropped():
    def sql(version: int) -> str:
        tables = {"gold/audit": f"gold/audit/dt={DAY}/v={version}"}
        note = DayNote(PUBLISHED, "", 1, "the reader's", 2, tables)
        return external_tables(Pointer(version, {DAY: note}), "s3a://bucket/tables")

    place = f"s3a://bucket/tables/gold/audit/dt={DAY}/v=2"
    assert f"ALTER TABLE gold_audit PARTITION (dt = '{DAY}') SET LOCATION '{place}';" in sql(2)
    assert "DROP" not in sql(2).upper()
    assert "'the reader''s'" in sql(2)


def test_duckdb_names_object_stores_in_its_way():
    note = DayNote(PUBLISHED, "", 1, "", 2, {"gold/audit": f"gold/audit/dt={DAY}/v=2"})
    sql = duckdb_views(Pointer(2, {DAY: note}), "s3a://bucket/tables")
    assert f"'s3://bucket/tables/gold/audit/dt={DAY}/v=2/*.parquet'" in sql
