"""Lets users read the tables by name: with views in Spark, or with SQL files for other programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import SparkSession

from groupkeeper.pipeline.log.columns import PUBLICATION_SCHEMA
from groupkeeper.pipeline.tables.columns import VIEWS
from groupkeeper.pipeline.tables.files import read_file, replace_file
from groupkeeper.pipeline.tables.lake import Lake, hadoop_path
from groupkeeper.pipeline.tables.pointer import Pointer
from groupkeeper.pipeline.tables.sql_views import (
    PUBLICATIONS,
    duckdb_views,
    external_tables,
    publication_rows,
)
from groupkeeper.pipeline.tables.versions import read_pointer, read_valid

FILES: Final[dict[str, Callable[[Pointer, str], str]]] = {
    "views/duckdb.sql": duckdb_views,
    "views/external_tables.sql": external_tables,
}
"""The files that each run writes, below the root of the tables."""


def create_views(spark: SparkSession, tables: str) -> list[str]:
    """Create a temporary view in Spark for each table of silver (facts about groups) and gold
    (summaries), and for the days (``publications``). Return the names of the views.

    All views show the tables of the last complete run, and do not change in a later run. To see
    newer tables, call the function again.
    """
    lake = Lake(tables.rstrip("/"))
    pointer = read_pointer(spark, lake)
    for view, (table, schema) in VIEWS.items():
        read_valid(spark, lake, pointer, table, schema).createOrReplaceTempView(view)
    notes = spark.createDataFrame(publication_rows(pointer), PUBLICATION_SCHEMA)
    notes.createOrReplaceTempView(PUBLICATIONS)
    return [*VIEWS, PUBLICATIONS]


def write_view_files(spark: SparkSession, lake: Lake, pointer: Pointer) -> None:
    """Write the SQL files for the valid tables. A file is not written if its content is the same.
    Nothing is written before the first run has published tables.
    """
    if not pointer.version:
        return
    place, file_system = hadoop_path(spark, lake.root)
    root = str(file_system.makeQualified(place).toString()).removeprefix("file:")
    for name, text in FILES.items():
        content = text(pointer, root).encode()
        if read_file(spark, lake.path(name)) != content:
            replace_file(spark, lake.path(name), content)
