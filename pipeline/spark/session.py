"""The Spark session of all jobs, with the same settings in a shell, a test and under a
scheduler.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from groupkeeper.pipeline.spark.launch import start

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""The errors of a failing job: Spark's own, and Java's for which Spark has none."""

DEFAULT_MASTER: Final = "local[*]"
DEFAULT_DRIVER_MEMORY: Final = "2g"
"""Limits the JVM of a local run; Spark spills the rest to disk (docs/operate/pipeline.md)."""

_SETTINGS: Final = {
    # days are UTC days, wherever the job runs
    "spark.sql.session.timeZone": "UTC",
    # the parts of an aggregation; adaptive execution joins small ones
    "spark.sql.shuffle.partitions": "16",
    # each day's folder needs a writer; sorting every row by its day first costs more than these
    "spark.sql.maxConcurrentOutputFileWriters": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # one file of state per batch is enough
    "spark.sql.streaming.minBatchesToRetain": "10",
}

_LOCAL_SETTINGS: Final = {
    # a batch job need not avoid pauses, for which G1 uses a tenth of the processor time
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def spark_session(
    name: str,
    *,
    master: str | None = None,
    driver_memory: str = DEFAULT_DRIVER_MEMORY,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the session, and create it if there is none.

    Without ``master``, ``spark-submit`` chooses it, or else all cores of this machine are used.
    ``driver_memory`` applies if this call starts the JVM. ``settings`` are Spark's own and override
    ours. Raises SparkNotStarted if there is no Java, or the JVM cannot start.
    """
    builder = SparkSession.builder.appName(f"groupkeeper {name}")
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    if not _is_submitted():
        master = master or DEFAULT_MASTER
        builder = builder.config("spark.driver.memory", driver_memory)
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            # Spark starts its Python by the name python3, which would ignore a virtualenv
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            for key, value in _LOCAL_SETTINGS.items():
                builder = builder.config(key, value)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    is_here = master is not None and master.startswith("local")
    spark = start(builder.getOrCreate, passes_on=not is_here)
    # a failure is raised too, and on this machine the log adds nothing
    is_local = str(spark.sparkContext.master).startswith("local")
    spark.sparkContext.setLogLevel("OFF" if is_local else "ERROR")
    return spark


def _is_submitted() -> bool:
    """Return True if ``spark-submit`` started this process, with its own JVM and master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
