"""Small tables: Spark computes the rows, and this process holds them and writes their files.

For a few thousand rows, Spark's writer and reader cost several times more than the computation.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from groupkeeper.pipeline.spark.session import is_small
from groupkeeper.pipeline.tables.files import local_path, replace_file
from groupkeeper.pipeline.tables.lake import DAY, is_hidden, read_table, remove_folder

if TYPE_CHECKING:  # a session for large data does without it
    import pyarrow as pa

_BATCH: Final = "batch_id"


def frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Return rows that this process holds as a table of one partition."""
    return spark.createDataFrame(rows, schema).coalesce(1)


def by_day(rows: pa.Table) -> Iterator[tuple[date, pa.Table]]:
    """Yield the rows of each day, without the column of the day, which is their folder's name. Rows
    without a day are left out.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for day in sorted(rows[DAY].drop_null().unique().to_pylist()):
        of_day = rows.filter(pc.equal(rows[DAY], pa.scalar(day, pa.date32())))
        yield day, of_day.drop_columns([DAY])


def write_rows(spark: SparkSession, folder: str, rows: pa.Table) -> None:
    """Write a file with the rows into a folder. Readers see the whole file or none."""
    import pyarrow.parquet as pq

    content = io.BytesIO()
    pq.write_table(rows, content, compression="zstd")
    replace_file(spark, f"{folder}/part-{uuid.uuid4()}.parquet", content.getvalue())


def write_small(
    spark: SparkSession,
    rows: Sequence[tuple[Any, ...]],
    schema: StructType,
    path: str,
    batch_id: str | None = None,
) -> None:
    """Replace a table with one file. If its rows are those of a batch, replace only that batch."""
    if not is_small(spark):
        writer = spark.createDataFrame(rows, schema).coalesce(1).write.mode("overwrite")
        writer = writer.option("partitionOverwriteMode", "dynamic")
        (writer.partitionBy(_BATCH) if batch_id is not None else writer).parquet(path)
        return
    import pyarrow as pa

    columns = map(list, zip(*rows, strict=True)) if rows else ([] for _ in schema)
    held = pa.table(list(columns), schema=to_arrow_schema(schema))
    if batch_id is not None:
        path, held = f"{path}/{_BATCH}={batch_id}", held.drop_columns([_BATCH])
    remove_folder(spark, path)
    write_rows(spark, path, held)


def read_small(spark: SparkSession, path: str, schema: StructType) -> list[dict[str, Any]]:
    """Return all rows of a table that ``write_small`` writes. A table that was never written has
    none.
    """
    place = local_path(spark, path) if is_small(spark) else None
    if place is None:
        return [row.asDict() for row in read_table(spark, path, schema).collect()]
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = []
    for file in sorted(place.glob("**/*.parquet")):
        folders = file.relative_to(place).parts[:-1]
        if any(map(is_hidden, (*folders, file.name))):
            continue
        known = dict.fromkeys(schema.names)
        if folders:  # one for each batch
            known[_BATCH] = unquote(folders[0].removeprefix(f"{_BATCH}="))
        with pq.ParquetFile(file) as content:
            names = [name for name in content.schema_arrow.names if name in known]
            rows += [known | row for row in content.read(columns=names).to_pylist()]
    return rows
