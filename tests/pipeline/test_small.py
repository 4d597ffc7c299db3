"""Small tables that this process writes are read by Spark as if Spark had written them."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from groupkeeper.pipeline.log.columns import LACKING_SCHEMA, VERDICT_SCHEMA
from groupkeeper.pipeline.tables.lake import read_table
from groupkeeper.pipeline.tables.small import write_small
from tests.pipeline.conftest import as_for_large_data

FIRST, SECOND, AGAIN = (("dt=x/a", 5, 6, "sha", None, "", batch) for batch in ("0", "1", "0"))


@pytest.mark.parametrize("is_small", [True, False])
def test_a_batch_replaces_its_own_rows_and_no_others(spark, tmp_path, is_small):
    table = str(tmp_path / "verdicts")

    def rows() -> list[tuple]:
        return sorted(map(tuple, read_table(spark, table, VERDICT_SCHEMA).collect()), key=repr)

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
            assert [
                tuple(row) for row in read_table(spark, table, LACKING_SCHEMA).collect()
            ] == rows
