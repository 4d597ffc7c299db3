"""The Spark session of all jobs: the same settings in a shell, in a test and under a scheduler."""

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
"""What a failing job raises: Spark's own errors, and Java's where it has none for them."""

DEFAULT_MASTER: Final = "local[*]"
DEFAULT_DRIVER_MEMORY: Final = "2g"
"""Bounds the JVM of a local run; Spark spills the rest to disk (docs/operate/pipeline.md)."""

_SETTINGS: Final = {
    # days are UTC days, wherever the job runs
    "spark.sql.session.timeZone": "UTC",
    # the parts of an aggregation; adaptive execution joins those that turn out small
    "spark.sql.shuffle.partitions": "16",
    # a day's folder needs one writer; sorting every row by its day first costs more than these
    "spark.sql.maxConcurrentOutputFileWriters": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # one file of state a batch is enough to look back on
    "spark.sql.streaming.minBatchesToRetain": "10",
}

_LOCAL_SETTINGS: Final = {
    # a batch job does not care for short pauses, which G1 takes a tenth of the processor time for
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
    """Return the session, making it when there is none.

    ``master`` None leaves the choice to ``spark-submit`` and, without it, runs on every core of
    this machine. ``driver_memory`` counts when this call starts the JVM. ``settings`` are Spark's
    own, and win over ours. Raises SparkNotStarted where there is no Java, or it cannot start so.
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
            # Spark starts its Python by the name python3, which knows nothing of a virtualenv
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            for key, value in _LOCAL_SETTINGS.items():
                builder = builder.config(key, value)
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    is_here = master is not None and master.startswith("local")
    spark = start(builder.getOrCreate, passes_on=not is_here)
    # What fails is raised as well; on this machine that is all there is to say of it
    is_local = str(spark.sparkContext.master).startswith("local")
    spark.sparkContext.setLogLevel("OFF" if is_local else "ERROR")
    return spark


def _is_submitted() -> bool:
    """Tell whether ``spark-submit`` started this process, with a JVM and a master of its own."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
