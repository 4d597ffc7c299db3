"""Where the tables lie: one folder, one sub-folder a table, Parquet that any tool can read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date
from typing import Final

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
    def checkpoint(self) -> str:
        """What the stream that fills bronze has read."""
        return f"{self.root}/_checkpoint"

    def carried(self, table: str) -> str:
        """What the end of each day leaves to the next; the pipeline's own."""
        return f"{self.root}/_carried/{table}"

    @property
    def publications(self) -> str:
        """Which days are published, from which segments, and which are not: a row a day."""
        return f"{self.root}/publications"

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


def remove_days(spark: SparkSession, path: str, days: Collection[date]) -> None:
    """Remove days of a table, where they are there."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    for day in days:
        folder = jvm.org.apache.hadoop.fs.Path(f"{path}/{DAY}={day.isoformat()}")
        folder.getFileSystem(configuration).delete(folder, True)
