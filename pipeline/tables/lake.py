"""The paths of the tables: one folder, with a sub-folder per table, in Parquet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

DAY: Final = "dt"
"""The column that tables are partitioned by: the UTC day, ``dt=2026-11-21``."""


_ABSENT: Final = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
"""Spark's errors for a table that was never written, and for one whose days were all removed."""


def is_absent(error: AnalysisException) -> bool:
    """Return True if a table could not be read because it does not exist or is empty."""
    return error.getCondition() in _ABSENT


@dataclass(frozen=True)
class Lake:
    """The paths under one root: a local folder, or a URL that the Spark cluster can write to."""

    root: str

    @property
    def events(self) -> str:
        """The folder of bronze's events: as they are in the log, in ``dt=…/batch_id=…``."""
        return f"{self.root}/bronze/events"

    @property
    def segments(self) -> str:
        """Bronze: the segments and seqs that each batch has written."""
        return f"{self.root}/bronze/segments"

    @property
    def verdicts(self) -> str:
        """Bronze: the verdicts on the files of the log's folder, by batch."""
        return f"{self.root}/bronze/verdicts"

    @property
    def lacking(self) -> str:
        """Bronze: segments that the log's folder should have, but that are missing or wrong."""
        return f"{self.root}/bronze/lacking"

    @property
    def tickets(self) -> str:
        """The lists of files to read, which are the input of bronze's stream."""
        return f"{self.root}/_tickets"

    @property
    def checkpoint(self) -> str:
        """Spark's checkpoint of that stream, for one run only."""
        return f"{self.root}/_checkpoint"

    def carried(self, table: str) -> str:
        """Return the path of the rows that one day carries to the next. Only the pipeline reads
        them."""
        return f"{self.root}/_carried/{table}"

    @property
    def publications(self) -> str:
        """The published and the unpublished days, with their segments: one row per day."""
        return f"{self.root}/publications"

    @property
    def new_publications(self) -> str:
        """``publications`` while it is written, before it replaces the old one."""
        return f"{self.root}/_publications"

    def silver(self, table: str) -> str:
        return f"{self.root}/silver/{table}"

    def gold(self, table: str) -> str:
        return f"{self.root}/gold/{table}"


def read_table(spark: SparkSession, path: str, schema: StructType | None = None) -> DataFrame:
    """Read a table. If a table was never written, return an empty one with the given schema."""
    reader = spark.read if schema is None else spark.read.schema(schema)
    try:
        return reader.parquet(path)
    except AnalysisException as error:
        if schema is None or not is_absent(error):
            raise
        return spark.createDataFrame([], schema)


def write_days(table: DataFrame, path: str, *more_partitions: str) -> None:
    """Write whole days: each day in the frame is replaced, and every other day stays.

    Repeating the call has the same result, so an interrupted job can repeat it.
    """
    writer = table.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy(DAY, *more_partitions).parquet(path)


def write_small(table: DataFrame, path: str, *partitions: str) -> None:
    """Replace a table with one file. With ``partitions``, replace only the partitions that
    ``table`` has, each with one file."""
    writer = table.coalesce(1).write.mode("overwrite")
    writer = writer.option("partitionOverwriteMode", "dynamic")
    (writer.partitionBy(*partitions) if partitions else writer).parquet(path)


def replace_table(table: DataFrame, path: str, beside: str) -> None:
    """Replace a table with one file. After a crash either the old or the new table exists.

    Spark would remove the old table first, and a crash at that moment would leave no table.
    """
    table.coalesce(1).write.mode("overwrite").parquet(beside)
    remove_folder(table.sparkSession, path)
    finish_replacing(table.sparkSession, path, beside)


def finish_replacing(spark: SparkSession, path: str, beside: str) -> None:
    """Move a new table from its temporary place to its own, if that is empty."""
    place, file_system = hadoop_path(spark, path)
    whole, _ = hadoop_path(spark, f"{beside}/_SUCCESS")
    if file_system.exists(whole) and not file_system.exists(place):
        file_system.rename(whole.getParent(), place)


def make_folder(spark: SparkSession, path: str) -> None:
    """Create a folder if it does not exist."""
    folder, file_system = hadoop_path(spark, path)
    file_system.mkdirs(folder)


def remove_folder(spark: SparkSession, path: str) -> None:
    """Remove a folder and its content, if it exists."""
    folder, file_system = hadoop_path(spark, path)
    file_system.delete(folder, True)


def batches(spark: SparkSession, path: str) -> set[str]:
    """Return the batches that wrote to a table, on any day."""
    return {folder.getName().partition("=")[2] for folder in _of_batch(spark, path, "*")}


def remove_batch(spark: SparkSession, path: str, batch_id: str) -> None:
    """Remove the rows that a batch wrote to a table, on any day."""
    for folder in _of_batch(spark, path, batch_id):
        remove_folder(spark, folder.toString())


def _of_batch(spark: SparkSession, path: str, batch_id: str) -> list[Any]:
    found: list[Any] = []
    for pattern in (f"{path}/batch_id={batch_id}", f"{path}/{DAY}=*/batch_id={batch_id}"):
        folders, file_system = hadoop_path(spark, pattern)
        found += [each.getPath() for each in file_system.globStatus(folders) or ()]
    return found


def remove_days(spark: SparkSession, path: str, days: Collection[date]) -> None:
    """Remove days of a table, if they exist."""
    for day in days:
        remove_folder(spark, f"{path}/{DAY}={day.isoformat()}")


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return a path as a Hadoop path, and its file system."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    found = jvm.org.apache.hadoop.fs.Path(path)
    return found, found.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
