"""Makes the Spark session of every job. The settings are the same in a shell, in a test and under a
scheduler.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from groupkeeper.pipeline.spark.class_archive import ClassArchive
from groupkeeper.pipeline.spark.launch import start
from groupkeeper.pipeline.spark.user_settings import user_settings

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""The errors of a failing job: PySpark's own, and errors of Java that PySpark does not convert."""

DEFAULT_MASTER: Final = "local[*]"
DEFAULT_DRIVER_MEMORY: Final = "2g"
"""The memory limit of the JVM in a local run. Spark spills larger data to disk
(docs/operate/pipeline.md)."""

SMALL_BYTES: Final = 8 * 1024 * 1024
"""An input below this size is small. To compile the code of its queries would cost more time than
the compiled code saves (docs/operate/pipeline.md#memory-and-size)."""

SMALL: Final = "spark.groupkeeper.small"
"""The setting of a session for small data. Its tables have one partition, and this process writes
their files (``pipeline.tables.small``)."""

_SETTINGS: Final = {
    # days are UTC days, wherever the job runs
    "spark.sql.session.timeZone": "UTC",
    # Each day's folder has a writer. If there are more days than writers, Spark first sorts the
    # rows by day, which costs more than four writers.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # if this is true, PySpark asks the JVM at which line of Python each column was made
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}

_LARGE: Final = {
    # the parts of an aggregation; adaptive execution joins small ones
    "spark.sql.shuffle.partitions": "16",
}

_SMALL: Final = {
    # no generated code, because each query runs once
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # adaptive execution plans each query several times
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    # no broadcasts, because each is a job of its own
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    # with more than 128 keys, Spark would sort the rows of some aggregations
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1000000",
    SMALL: "true",
}

_LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}

_JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"
# a batch job need not avoid pauses, for which G1 uses a tenth of the processor time
_LARGE_JVM: Final = "-XX:+UseParallelGC"
# The second compiler needs longer than a small job. The code of the first one needs more than the
# usual 48 MB. Spark's classes exceed the usual 21 MB of metaspace several times, and each time the
# JVM collects garbage in all of its memory.
_SMALL_JVM: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
)


def spark_session(
    name: str,
    *,
    master: str | None = None,
    driver_memory: str = DEFAULT_DRIVER_MEMORY,
    input_bytes: int | None = None,
    settings: Mapping[str, str] | None = None,
    archive: ClassArchive | None = None,
) -> SparkSession:
    """Return the Spark session. If there is none, create it.

    - ``master``: if it is None, the master of ``spark-submit`` is used. Without ``spark-submit``,
      all cores of this machine are used.
    - ``driver_memory``: the memory limit of the JVM. It is used only if this call starts the JVM.
    - ``input_bytes``: the size of the input, if it is known. A small input gets other settings.
    - ``settings``: settings of Spark, which override ours. The settings of ``spark-submit`` and of
      ``spark-defaults.conf`` override ours too.
    - ``archive``: the archive of Java classes. It is used only if Spark runs on this machine.

    Raises SparkNotStarted if there is no Java, or the JVM cannot start.
    """
    is_submitted = _is_submitted()
    if not is_submitted:
        master = master or DEFAULT_MASTER
    is_here = master is not None and master.startswith("local")
    is_small = input_bytes is not None and input_bytes < SMALL_BYTES
    ours = our_settings(is_here=is_here, is_small=is_small)
    if not is_submitted:
        ours["spark.driver.memory"] = driver_memory
        if archive is not None and is_here:
            ours[_JVM_OPTIONS] = f"{ours[_JVM_OPTIONS]} {archive.jvm_options()}".rstrip()
    users = user_settings(is_submitted=is_submitted)
    if driver_memory != DEFAULT_DRIVER_MEMORY:  # the user has chosen it for this run
        users.pop("spark.driver.memory", None)
    builder = SparkSession.builder.appName(f"groupkeeper {name}")
    for key, value in {**ours, **users, **(settings or {})}.items():
        builder = builder.config(key, value)
    if master is not None:
        builder = builder.master(master)
    if is_here:
        # Spark starts its Python by the name python3, which would ignore a virtualenv
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = start(builder.getOrCreate, passes_on=not is_here)
    # errors are raised as exceptions too, so the log of a local Spark adds nothing
    is_local = str(spark.sparkContext.master).startswith("local")
    spark.sparkContext.setLogLevel("OFF" if is_local else "ERROR")
    if spark.sparkContext._jvm is not None:
        _keep_classes(spark.sparkContext._jvm)
    return spark


def is_small(spark: SparkSession) -> bool:
    """Return True if the session was made for small data."""
    return spark.conf.get(SMALL, "false") == "true"


def prepare_for_large_data(spark: SparkSession) -> None:
    """Replace our settings for small data, because the data are larger than ``input_bytes``. The
    options of the JVM stay.
    """
    for key, value in _SMALL.items():
        is_fixed = key == "spark.default.parallelism"  # Spark reads it once, at its start
        if not is_fixed and spark.conf.get(key, None) == value:
            spark.conf.unset(key)
            if key in _LARGE:
                spark.conf.set(key, _LARGE[key])


_FUNCTIONS: Final = "org.apache.spark.sql.functions"
_LOOKED_UP: Final = (
    *("functions", "PythonUtils", "PythonSQLUtils", "PythonRDD", "SerDeUtil"),
    *("java", "org", "py4j", "org.apache.hadoop.fs.Path"),
)
"""The names that PySpark and the pipeline look up in the JVM many times for each query."""


def _keep_classes(jvm: Any) -> None:
    """Cache the classes of ``_LOOKED_UP`` in ``jvm``, because each look-up by name searches all
    jars of Spark.
    """
    for name in _LOOKED_UP:
        setattr(jvm, name, getattr(jvm, name))
    setattr(jvm, _FUNCTIONS, jvm.functions)
    for function in ("col", "lit"):
        setattr(jvm.functions, function, getattr(jvm.functions, function))
    jvm.PythonUtils.toSeq = jvm.PythonUtils.toSeq


def our_settings(*, is_here: bool, is_small: bool) -> dict[str, str]:
    """Return the settings of Spark that the pipeline chooses. The caller lets the user's settings
    override them.
    """
    chosen = {**_SETTINGS, **(_SMALL if is_small else _LARGE)}
    if is_here:
        chosen |= _LOCAL
        chosen[_JVM_OPTIONS] = _SMALL_JVM if is_small else _LARGE_JVM
    return chosen


def _is_submitted() -> bool:
    """Return True if ``spark-submit`` started this process, with its own JVM and master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
