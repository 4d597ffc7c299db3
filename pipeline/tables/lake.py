"""The paths of the tables, and functions that read, write and remove their folders. The tables are
in one folder, with a sub-folder for each table, in Parquet.

Bronze has the events, silver facts about groups, and gold summaries. ``_carried`` has the rows that
a day carries to the next day.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from groupkeeper.pipeline.spark.session import is_small
from groupkeeper.pipeline.tables.pointer import POINTER, has_version

DAY: Final = "dt"
"""The column that tables are partitioned by: the UTC day, ``dt=2026-11-21``."""

VERSION: Final = "v"
"""The folder below the day, ``v=17``: the number of the run that wrote the folder. No table has
this number as a column.
"""

_ABSENT: Final = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
"""Spark's errors for a table that was never written, or that has no day any more."""


def is_absent(error: AnalysisException) -> bool:
    """Return True if a table could not be read because it does not exist or is empty."""
    return error.getCondition() in _ABSENT


def is_hidden(name: str) -> bool:
    """Return True if Spark ignores files and folders of this name."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


@dataclass(frozen=True)
class Lake:
    """The paths under one root: a local folder, or a URL that the Spark cluster can write to."""

    root: str

    @property
    def events(self) -> str:
        """The folder of bronze: the unchanged events of the log, in ``dt=…/batch_id=…``."""
        return f"{self.root}/bronze/events"

    @property
    def segments(self) -> str:
        """The folder of the table of segments (files of events). It shows which events of each
        segment bronze has, and from which batch.
        """
        return f"{self.root}/bronze/segments"

    @property
    def verdicts(self) -> str:
        """The folder of the table of verdicts: the result of checking each file of the log's
        folder, by batch.
        """
        return f"{self.root}/bronze/verdicts"

    @property
    def lacking(self) -> str:
        """The folder of the table of segments that are missing from the log's folder, or wrong
        there.
        """
        return f"{self.root}/bronze/lacking"

    @property
    def pointer(self) -> str:
        """The file that names the valid folders of silver, gold and ``_carried``."""
        return self.path(POINTER)

    @property
    def writing(self) -> str:
        """The file with the names of the folders that a run is writing. If the run is killed, the
        next run removes these folders.
        """
        return self.path("_writing.json")

    @property
    def publications(self) -> str:
        """The table of published days, in tables from before 0.2.0.dev5."""
        return self.path("publications")

    @property
    def new_publications(self) -> str:
        """The temporary folder of ``publications``. A run of a version before 0.2.0.dev5 wrote the
        table here, and renamed the folder when it was complete.
        """
        return self.path("_publications")

    def path(self, below: str) -> str:
        """Return the path of a file or folder below the root."""
        return f"{self.root}/{below}"


def read_table(spark: SparkSession, path: str, schema: StructType | None = None) -> DataFrame:
    """Read a table. If a table was never written, return an empty one with the given schema.
    Without a schema, Spark raises an error.
    """
    if schema is None:
        return spark.read.parquet(path)
    if not exists(spark, path):  # cheaper than Spark's error
        return empty(spark, schema)
    try:
        return spark.read.schema(schema).parquet(path)
    except AnalysisException as error:
        if not is_absent(error):
            raise
        return empty(spark, schema)


def empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return an empty table. Spark knows that it is empty, and leaves it out of each query."""
    jvm, session = spark.sparkContext._jvm, spark._jsparkSession
    assert jvm is not None
    rows = session.createDataFrame(jvm.java.util.ArrayList(), session.parseDataType(schema.json()))
    return DataFrame(rows, spark)


def read_folders(
    spark: SparkSession,
    lake: Lake,
    table: str,
    folders: Collection[str],
    schema: StructType,
    is_wanted: Callable[[str], bool] | None = None,
) -> DataFrame:
    """Read some folders of a table. Without folders, return an empty table. With ``is_wanted``,
    read only the files for whose names it returns True.
    """
    reader = spark.read.schema(schema).option("basePath", lake.path(table))
    # a version before 0.2.0.dev5 wrote its files beside the folders of versions (``v=17``)
    versions = [lake.path(folder) for folder in folders if has_version(folder)]
    if is_wanted is not None:
        names = ((folder, name) for folder in versions for name in file_sizes(spark, folder))
        versions = [f"{folder}/{name}" for folder, name in names if is_wanted(name)]
    others = [lake.path(f"{folder}/*.parquet") for folder in folders if not has_version(folder)]
    parts = [reader.parquet(*paths).select(schema.names) for paths in (versions, others) if paths]
    if not parts:
        return empty(spark, schema)
    rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    return rows.coalesce(1) if is_small(spark) else rows  # one partition needs no shuffle


def write_days(table: DataFrame, path: str, *more_partitions: str, name: str = "part") -> None:
    """Write whole days: replace the folders of the days in ``table``, and keep all others.

    With ``more_partitions``, only folders of the same day and partition are replaced. A second call
    with the same rows changes nothing, so an interrupted job can be repeated. The name of each file
    begins with ``name`` and the number of its partition.
    """
    writer = table.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer = writer.option("maxRecordsPerFile", MAX_FILE_ROWS)
    writer = writer.option("mapreduce.output.basename", name)
    writer.partitionBy(DAY, *more_partitions).parquet(path)


MAX_FILE_ROWS: Final = 5_000_000
"""The largest number of rows in a file of a table, about 100 MB. A large day has several files, so
that several tasks can read it."""


def add_days(table: DataFrame, path: str, version: int, name: str = "part") -> None:
    """Write days of a table into new folders of this version. Existing folders stay."""
    # not mode("append"): it would also move the finished tasks of a killed job into the table
    write_days(table.withColumn(VERSION, F.lit(version)), path, VERSION, name=name)


def finish_replacing(spark: SparkSession, path: str, beside: str) -> None:
    """Rename the complete table at the temporary path ``beside`` to ``path``. Do nothing if
    ``path`` exists, or if the new table is not complete.
    """
    place, file_system = hadoop_path(spark, path)
    whole, _ = hadoop_path(spark, f"{beside}/_SUCCESS")
    if file_system.exists(whole) and not file_system.exists(place):
        file_system.rename(whole.getParent(), place)


def remove_folder(spark: SparkSession, path: str) -> None:
    """Remove a folder and its content, if it exists."""
    folder, file_system = hadoop_path(spark, path)
    file_system.delete(folder, True)


def remove_all(spark: SparkSession, pattern: str) -> None:
    """Remove every file and folder whose path matches a pattern of Hadoop."""
    matching, file_system = hadoop_path(spark, pattern)
    for found in file_system.globStatus(matching) or ():
        file_system.delete(found.getPath(), True)


def exists(spark: SparkSession, path: str) -> bool:
    """Return True if a file or folder exists."""
    place, file_system = hadoop_path(spark, path)
    return bool(file_system.exists(place))


def file_sizes(spark: SparkSession, path: str) -> dict[str, int]:
    """Map the name of each Parquet file of a folder to its size in bytes."""
    files, file_system = hadoop_path(spark, f"{path}/*.parquet")
    found = file_system.globStatus(files) or ()
    return {str(each.getPath().getName()): int(each.getLen()) for each in found}


def bronze_folders(spark: SparkSession, lake: Lake) -> list[str]:
    """Return the folders of all batches of bronze, relative to the root of the tables."""
    folders = (folder.split("/")[-2:] for folder in batch_folders(spark, lake.events, "*"))
    return [f"bronze/events/{day}/{batch}" for day, batch in folders]


def numbers(spark: SparkSession, path: str) -> set[int]:
    """Return the numbers of the batches that wrote to a table. Imports are left out, because their
    ids are not numbers.
    """
    batches = {folder.rpartition("=")[2] for folder in batch_folders(spark, path, "*")}
    return {int(batch) for batch in batches if batch.isdecimal()}


def remove_batch(spark: SparkSession, path: str, batch_id: str) -> None:
    """Remove the rows of all days that a batch wrote to a table."""
    for folder in batch_folders(spark, path, batch_id):
        remove_folder(spark, folder)


def batch_folders(spark: SparkSession, path: str, batch_id: str) -> list[str]:
    """Return the folders of all days that a batch wrote in a table. ``*`` means every batch."""
    found: list[str] = []
    for pattern in (f"{path}/batch_id={batch_id}", f"{path}/{DAY}=*/batch_id={batch_id}"):
        folders, file_system = hadoop_path(spark, pattern)
        found += [each.getPath().toString() for each in file_system.globStatus(folders) or ()]
    return found


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return a path as a Hadoop path, and its file system."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    found = getattr(jvm, "org.apache.hadoop.fs.Path")(path)
    return found, found.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
