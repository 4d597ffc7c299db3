"""Small tables that this process writes are read by Spark as if Spark had written them."""

from __future__ import annotations

import shutil
from contextlib import nullcontext

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import ArrayType, MapType

from groupkeeper.pipeline.log.columns import (
    DATE,
    LACKING_SCHEMA,
    LONG,
    STRING,
    VERDICT_SCHEMA,
    struct_of,
)
from groupkeeper.pipeline.tables import small
from groupkeeper.pipeline.tables.lake import Lake, read_folders, read_table
from groupkeeper.pipeline.tables.small import read_days, read_small, write_small
from tests.pipeline.conftest import as_for_large_data

FIRST, SECOND, AGAIN = (("dt=x/a", 5, 6, "sha", None, "", batch) for batch in ("0", "1", "0"))


@pytest.mark.parametrize("is_small", [True, False])
def test_a_batch_replaces_its_own_rows_and_no_others(spark, tmp_path, is_small):
    table = str(tmp_path / "verdicts")

    def rows() -> list[tuple]:
        found = sorted(map(tuple, read_table(spark, table, VERDICT_SCHEMA).collect()), key=repr)
        read = (tuple(row.values()) for row in read_small(spark, table, VERDICT_SCHEMA))
        assert sorted(read, key=repr) == found
        return found

    with nullcontext() if is_small else as_for_large_data(spark):
        for row in (FIRST, SECOND, changed := (*AGAIN[:5], "cut off", "0")):
            write_small(spark, [row], VERDICT_SCHEMA, table, row[-1])
        assert rows() == [SECOND, changed]


@pytest.mark.parametrize("is_small", [True, False])
def test_a_table_without_batches_is_replaced_as_a_whole(spark, tmp_path, is_small):
    table = str(tmp_path / "lacking")
    with nullcontext() if is_small else as_for_large_data(spark):
        for rows in ([("a", "absent"), ("b", "absent")], [("c", "cut off")], []):
            write_small(spark, rows, LACKING_SCHEMA, table)
            found = read_table(spark, table, LACKING_SCHEMA).collect()
            assert [tuple(row) for row in found] == rows
            assert [tuple(row.values()) for row in read_small(spark, table, LACKING_SCHEMA)] == rows


def test_what_a_killed_writer_left_and_columns_of_other_versions_are_read_over(spark, tmp_path):
    """As Spark reads them: a file that begins with an underscore is not there yet."""
    table = tmp_path / "verdicts"
    write_small(spark, [FIRST], VERDICT_SCHEMA, str(table), "0")
    (file,) = table.glob("batch_id=0/*.parquet")
    shutil.copy(file, file.with_name("_part-of-a-killed-one.parquet"))
    shutil.copytree(table / "batch_id=0", table / "_temporary" / "batch_id=1")
    earlier = pa.table({"file": ["dt=x/b"], "file_bytes": [7], "gone": ["what it was"]})
    (table / "batch_id=a%3Ab").mkdir()
    pq.write_table(earlier, table / "batch_id=a%3Ab" / "part.parquet")
    rows = read_small(spark, str(table), VERDICT_SCHEMA)
    assert sorted(map(repr, rows)) == sorted(
        repr(row.asDict()) for row in read_table(spark, str(table), VERDICT_SCHEMA).collect()
    )
    assert {row["batch_id"] for row in rows} == {"0", "a:b"}


HELD = struct_of(
    (STRING, "group"),
    (LONG, "seq"),
    (ArrayType(struct_of((STRING, "topic reason"))), "topics"),
    (MapType(STRING, ArrayType(LONG)), "partitions"),
    (STRING, "batch_id"),
    (DATE, "dt"),
)
PLACES = ("bronze/events/dt=1970-01-01/batch_id=a%3Ab", "bronze/events/dt=1970-01-02/batch_id=7")
TOPIC = {"topic": "orders", "reason": "deleted"}
MAP = pa.map_(pa.string(), pa.list_(pa.int64()))
WHOLE = {
    "topics": pa.array([[TOPIC], [], None]),
    "partitions": pa.array([[("m", [1, 2])], [], None], MAP),
}
FILES = {
    "all columns": WHOLE,
    "an unknown column": WHOLE | {"unknown": pa.array([1, 2, 3])},
    "a column is missing": {"topics": WHOLE["topics"]},
    "a narrower number": WHOLE | {"seq": pa.array([1, None, 3], pa.int32())},
    "a field is missing": WHOLE | {"topics": pa.array([[{"topic": "orders"}], [], None])},
}


@pytest.mark.parametrize("most_bytes", [0, 1024 * 1024])
@pytest.mark.parametrize("columns", FILES)
def test_days_are_read_as_spark_reads_them(spark, tmp_path, monkeypatch, columns, most_bytes):
    monkeypatch.setattr(small, "MAX_HELD_BYTES", most_bytes)
    lake = Lake(str(tmp_path))
    rows = {"group": ["g", None, "h"], "seq": pa.array([1, None, 3], pa.int64())}
    for place, more in zip(PLACES, (WHOLE, FILES[columns]), strict=True):
        (tmp_path / place).mkdir(parents=True)
        for name in ("part-0.parquet", "_part-of-a-killed-one.parquet"):
            pq.write_table(pa.table(rows | more), tmp_path / place / name)

    def found(read) -> list[str]:
        return sorted(map(repr, read(spark, lake, "bronze/events", PLACES, HELD).collect()))

    assert found(read_days) == found(read_folders)
    assert len(found(read_days)) == 6


def test_a_folder_of_a_day_that_is_lost_is_an_error_also_for_small_data(spark, tmp_path):
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        read_days(spark, Lake(str(tmp_path)), "bronze/events", PLACES, HELD).collect()
