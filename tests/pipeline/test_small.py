"""Small tables that this process writes are read by Spark as if Spark had written them."""

from __future__ import annotations

import shutil
from contextlib import nullcontext

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from groupkeeper.pipeline.log.columns import LACKING_SCHEMA, VERDICT_SCHEMA
from groupkeeper.pipeline.tables.lake import read_table
from groupkeeper.pipeline.tables.small import read_small, write_small
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
