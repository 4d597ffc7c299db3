"""The paths of the tables: one folder, with a sub-folder per table, in Parquet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from groupkeeper.pipeline.tables.pointer import POINTER, has_version

DAY: Final = "dt"
"""The column that tables are partitioned by: the UTC day, ``dt=2026-11-21``."""

VERSION: Final = "v"
"""The folder below that: the number of the run that wrote it. Readers never see it as a column."""

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
    def pointer(self) -> str:
        """The file that names what is valid in silver, gold and ``_carried``."""
        return self.path(POINTER)

    @property
    def writing(self) -> str:
        """The file that names what a run is writing, so that the next one can remove it."""
        return self.path("_writing.json")

    @property
    def publications(self) -> str:
        """The table that named the published days until 0.2.0.dev3."""
        return self.path("publications")

    @property
    def new_publications(self) -> str:
        """``publications`` while 0.2.0.dev3 wrote it, before it replaced the old one."""
        return self.path("_publications")

    def path(self, below: str) -> str:
        """Return the path of what is below the root."""
        return f"{self.root}/{below}"


def read_table(spark: SparkSession, path: str, schema: StructType | None = None) -> DataFrame:
    """Read a table. If a table was never written, return an empty one with the given schema."""
    reader = spark.read if schema is None else spark.read.schema(schema)
    try:
        return reader.parquet(path)
    except AnalysisException as error:
        if schema is None or not is_absent(error):
            raise
        return spark.createDataFrame([], schema)


def read_folders(
    spark: SparkSession, lake: Lake, table: str, folders: Collection[str], schema: StructType
) -> DataFrame:
    """Read some folders of a table. Without any, return an empty one."""
    reader = spark.read.schema(schema).option("basePath", lake.path(table))
    # a folder of 0.2.0.dev3 has folders of versions beside its files
    versions = [lake.path(folder) for folder in folders if has_version(folder)]
    others = [lake.path(f"{folder}/*.parquet") for folder in folders if not has_version(folder)]
    parts = [reader.parquet(*paths).select(schema.names) for paths in (versions, others) if paths]
    if not parts:
        return spark.createDataFrame([], schema)
    return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])


def write_days(table: DataFrame, path: str, *more_partitions: str) -> None:
    """Write whole days: each day in the frame is replaced, and every other day stays.

    Repeating the call has the same result, so an interrupted job can repeat it.
    """
    writer = table.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer = writer.option("maxRecordsPerFile", MAX_FILE_ROWS)
    writer.partitionBy(DAY, *more_partitions).parquet(path)


MAX_FILE_ROWS: Final = 5_000_000
"""Rows in a file of a table, about 100 MB: readers of a day's largest tables can share the work."""


def add_days(table: DataFrame, path: str, version: int) -> None:
    """Write days of a table beside what exists, in folders of this version."""
    # not mode("append"): it would also move the finished tasks of a killed job into the table
    write_days(table.withColumn(VERSION, F.lit(version)), path, VERSION)


def write_small(table: DataFrame, path: str, *partitions: str) -> None:
    """Replace a table with one file. With ``partitions``, replace only the partitions that
    ``table`` has, each with one file."""
    writer = table.coalesce(1).write.mode("overwrite")
    writer = writer.option("partitionOverwriteMode", "dynamic")
    (writer.partitionBy(*partitions) if partitions else writer).parquet(path)


def finish_replacing(spark: SparkSession, path: str, beside: str) -> None:
    """Move a new table from its temporary place to its own, if that is empty."""
    place, file_system = hadoop_path(spark, path)
    whole, _ = hadoop_path(spark, f"{beside}/_SUCCESS")
    if file_system.exists(whole) and not file_system.exists(place):
        file_system.rename(whole.getParent(), place)


def remove_folder(spark: SparkSession, path: str) -> None:
    """Remove a folder and its content, if it exists."""
    folder, file_system = hadoop_path(spark, path)
    file_system.delete(folder, True)


def remove_all(spark: SparkSession, pattern: str) -> None:
    """Remove every file and folder whose path matches."""
    matching, file_system = hadoop_path(spark, pattern)
    for found in file_system.globStatus(matching) or ():
        file_system.delete(found.getPath(), True)


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


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return a path as a Hadoop path, and its file system."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    found = jvm.org.apache.hadoop.fs.Path(path)
    return found, found.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
