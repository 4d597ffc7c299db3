"""Where the tables lie: one folder, one sub-folder a table, Parquet that any tool can read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

DAY: Final = "dt"
"""The column that every table of a day is partitioned by: the UTC day, ``dt=2026-11-21``."""


_ABSENT: Final = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
"""What Spark says of a table that was never written, and of one whose days were all removed."""


def is_absent(error: AnalysisException) -> bool:
    """Tell whether a table could not be read because there is nothing of it."""
    return error.getCondition() in _ABSENT


@dataclass(frozen=True)
class Lake:
    """The paths under one root: a local folder, or a URL that the Spark cluster can write to."""

    root: str

    @property
    def events(self) -> str:
        """Bronze: ``dt=…/batch_id=…``, events as they are."""
        return f"{self.root}/bronze/events"

    @property
    def segments(self) -> str:
        """Bronze: which segments, and which seqs, each batch brought."""
        return f"{self.root}/bronze/segments"

    @property
    def verdicts(self) -> str:
        """Bronze: what was found out of each file of the log's folder, batch by batch."""
        return f"{self.root}/bronze/verdicts"

    @property
    def lacking(self) -> str:
        """Bronze: segments that ought to be in the log's folder and are not, or not as they
        should be.
        """
        return f"{self.root}/bronze/lacking"

    @property
    def tickets(self) -> str:
        """The files that are to be read: what the stream that fills bronze reads."""
        return f"{self.root}/_tickets"

    @property
    def checkpoint(self) -> str:
        """What that stream has read, in Spark's words; of one run alone."""
        return f"{self.root}/_checkpoint"

    def carried(self, table: str) -> str:
        """What the end of each day leaves to the next; the pipeline's own."""
        return f"{self.root}/_carried/{table}"

    @property
    def publications(self) -> str:
        """Which days are published, from which segments, and which are not: a row a day."""
        return f"{self.root}/publications"

    @property
    def new_publications(self) -> str:
        """The same while it is written, and not in its place yet."""
        return f"{self.root}/_publications"

    def silver(self, table: str) -> str:
        """A table of silver."""
        return f"{self.root}/silver/{table}"

    def gold(self, table: str) -> str:
        """A table of gold."""
        return f"{self.root}/gold/{table}"


def read_table(spark: SparkSession, path: str, schema: StructType | None = None) -> DataFrame:
    """Read a table; one that was never written is empty, where its schema is given."""
    reader = spark.read if schema is None else spark.read.schema(schema)
    try:
        return reader.parquet(path)
    except AnalysisException as error:
        if schema is None or not is_absent(error):
            raise
        return spark.createDataFrame([], schema)


def write_days(table: DataFrame, path: str, *more_partitions: str) -> None:
    """Write whole days: a day that the frame has a row of is replaced, every other is left alone.

    Doing it again leaves what doing it once left, so whoever dies in between does it again.
    """
    writer = table.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy(DAY, *more_partitions).parquet(path)


def write_small(table: DataFrame, path: str, *partitions: str) -> None:
    """Write a table that one file holds, or a file for each of its partitions, in the place of what
    is there.
    """
    writer = table.coalesce(1).write.mode("overwrite")
    writer = writer.option("partitionOverwriteMode", "dynamic")
    (writer.partitionBy(*partitions) if partitions else writer).parquet(path)


def replace_table(table: DataFrame, path: str, beside: str) -> None:
    """Write a table that one file holds in the place of what is there. Spark would remove that
    first: whoever died then would leave neither, and here leaves one or the other.
    """
    table.coalesce(1).write.mode("overwrite").parquet(beside)
    remove_folder(table.sparkSession, path)
    finish_replacing(table.sparkSession, path, beside)


def finish_replacing(spark: SparkSession, path: str, beside: str) -> None:
    """Put what was written beside a table in its place, if that is empty."""
    place, file_system = _hadoop(spark, path)
    whole, _ = _hadoop(spark, f"{beside}/_SUCCESS")
    if file_system.exists(whole) and not file_system.exists(place):
        file_system.rename(whole.getParent(), place)


def make_folder(spark: SparkSession, path: str) -> None:
    """Make a folder where it is not there."""
    folder, file_system = _hadoop(spark, path)
    file_system.mkdirs(folder)


def remove_folder(spark: SparkSession, path: str) -> None:
    """Remove a folder where it is there, with all that it holds."""
    folder, file_system = _hadoop(spark, path)
    file_system.delete(folder, True)


def batches(spark: SparkSession, path: str) -> set[str]:
    """Return the batches that wrote to a table, of whatever days."""
    return {folder.getName().partition("=")[2] for folder in _of_batch(spark, path, "*")}


def remove_batch(spark: SparkSession, path: str, batch_id: str) -> None:
    """Remove what a batch wrote to a table, of whatever days."""
    for folder in _of_batch(spark, path, batch_id):
        remove_folder(spark, folder.toString())


def _of_batch(spark: SparkSession, path: str, batch_id: str) -> list[Any]:
    found: list[Any] = []
    for pattern in (f"{path}/batch_id={batch_id}", f"{path}/{DAY}=*/batch_id={batch_id}"):
        folders, file_system = _hadoop(spark, pattern)
        found += [each.getPath() for each in file_system.globStatus(folders) or ()]
    return found


def remove_days(spark: SparkSession, path: str, days: Collection[date]) -> None:
    """Remove days of a table, where they are there."""
    for day in days:
        remove_folder(spark, f"{path}/{DAY}={day.isoformat()}")


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return a path as Hadoop knows it, and the file system that it is of."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    found = jvm.org.apache.hadoop.fs.Path(path)
    return found, found.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
