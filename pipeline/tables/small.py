"""Reads and writes small tables in this process (the driver), with Arrow. Spark only computes rows.

For a few thousand rows, Spark's writer and reader cost several times more than the computation.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from groupkeeper.pipeline.spark.session import is_small
from groupkeeper.pipeline.tables.files import local_path, replace_file
from groupkeeper.pipeline.tables.lake import (
    DAY,
    Lake,
    empty,
    is_hidden,
    read_folders,
    read_table,
    remove_folder,
)

if TYPE_CHECKING:  # a session for large data does without it
    import pyarrow as pa

_BATCH: Final = "batch_id"

MAX_HELD_BYTES: Final = 256 * 1024
"""The largest number of bytes of files that this process reads for a query. All of their rows
become a part of Spark's query plan, so for more bytes Spark's own reader is faster."""

MAX_HELD_ROWS: Final = 10_000
"""The largest number of written rows that become a part of later query plans. If a table has more
rows, a later query reads its files."""


def frame(spark: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """Return the rows of an Arrow table as a frame of Spark with one partition."""
    if not rows.num_rows:
        return empty(spark, schema)
    return spark.createDataFrame(rows, schema).coalesce(1)


def joined(rows: pa.Table, more: pa.Table) -> pa.Table:
    """Return the rows of both tables, with the columns of the first one."""
    import pyarrow as pa

    return pa.concat_tables([rows, more.select(rows.schema.names).cast(rows.schema)])


def by_day(rows: pa.Table) -> Iterator[tuple[date, pa.Table]]:
    """Yield each day of ``rows`` with its rows, without the column ``dt``. Rows without a day are
    left out.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for day in sorted(rows[DAY].drop_null().unique().to_pylist()):
        of_day = rows.filter(pc.equal(rows[DAY], pa.scalar(day, pa.date32())))
        yield day, of_day.drop_columns([DAY])


def write_rows(spark: SparkSession, folder: str, rows: pa.Table, name: str = "part") -> None:
    """Write a file with the rows into a folder. Readers see the whole file or none. The name of the
    file begins with ``name``.
    """
    import pyarrow.parquet as pq

    content = io.BytesIO()
    pq.write_table(rows, content, compression="zstd")
    replace_file(spark, f"{folder}/{name}-{uuid.uuid4()}.parquet", content.getvalue())


def read_days(
    spark: SparkSession,
    lake: Lake,
    table: str,
    folders: Collection[str],
    schema: StructType,
    is_wanted: Callable[[str], bool] | None = None,
) -> DataFrame:
    """Read some folders of a table, like ``read_folders``. If the files are small and on this
    machine, this process reads them, because a scan by Spark costs several times more.
    """
    if is_small(spark) and folders:
        held = read_held(spark, lake, folders, schema, MAX_HELD_BYTES, is_wanted)
        if held is not None:
            return frame(spark, held, schema)
    return read_folders(spark, lake, table, folders, schema, is_wanted)


def read_held(
    spark: SparkSession,
    lake: Lake,
    folders: Collection[str],
    schema: StructType,
    most_bytes: int,
    is_wanted: Callable[[str], bool] | None = None,
) -> pa.Table | None:
    """Return the rows of some folders. Return None if Spark must read them: their files have more
    bytes, are missing or not on this machine, or another version wrote columns of other types.
    """
    import pyarrow as pa

    root = local_path(spark, lake.root)
    if root is None:
        return None
    files = {folder: list(_files_in(root / folder)) for folder in folders}
    if not all(files.values()):
        return None
    if is_wanted is not None:
        files = {each: [file for file in files[each] if is_wanted(file.name)] for each in files}
    sizes = [file.stat().st_size for of_folder in files.values() for file in of_folder]
    if sum(sizes) > most_bytes:
        return None
    wanted = to_arrow_schema(schema)
    try:
        parts = [_read_file(file, each, wanted) for each in files for file in files[each]]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
    return pa.concat_tables([wanted.empty_table(), *parts])


def _files_in(folder: Path) -> Iterator[Path]:
    return (file for file in sorted(folder.glob("*.parquet")) if not is_hidden(file.name))


def _read_file(file: Path, folder: str, wanted: pa.Schema) -> pa.Table:
    """Return the rows of a file, with the columns ``wanted``. The names of its folders have further
    columns (``dt=2026-11-21``). A column that is neither in the file nor in these names is null.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    named = dict(part.split("=", 1) for part in folder.split("/") if "=" in part)
    with pq.ParquetFile(file) as content:
        names = [name for name in content.schema_arrow.names if name in wanted.names]
        held = content.read(columns=names)
    columns = []
    for field in wanted:
        if field.name in names:
            columns.append(held[field.name].cast(field.type))
            continue
        value = unquote(named[field.name]) if field.name in named else None
        same = pa.repeat(pa.scalar(value, pa.string()), held.num_rows)
        columns.append(same.cast(field.type) if value else pa.nulls(held.num_rows, field.type))
    return pa.table(columns, schema=wanted)


def write_small(
    spark: SparkSession,
    rows: Sequence[tuple[Any, ...]],
    schema: StructType,
    path: str,
    batch_id: str | None = None,
) -> None:
    """Replace a table by ``rows``, in one file. With ``batch_id``, replace only the rows of this
    batch.
    """
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
    """Return all rows of a table that ``write_small`` wrote, as dictionaries by column. Return no
    rows if the table was never written.
    """
    place = local_path(spark, path) if is_small(spark) else None
    if place is None:
        return [row.asDict() for row in read_table(spark, path, schema).collect()]
    wanted = to_arrow_schema(schema)
    rows: list[dict[str, Any]] = []
    for file in sorted(place.glob("**/*.parquet")):
        inside = file.relative_to(place)
        if not any(map(is_hidden, inside.parts)):
            rows += _read_file(file, str(inside.parent), wanted).to_pylist()
    return rows
