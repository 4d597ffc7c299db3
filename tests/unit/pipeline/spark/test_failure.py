"""What a person is told when Spark fails."""

from __future__ import annotations

import pytest

from groupkeeper.pipeline.spark.failure import why, why_not_started

DAMAGED = """\
[STREAM_FAILED] Query [id = 6c33e, runId = 25df4] terminated with exception: [FOREACH_BATCH] Reason:
Traceback (most recent call last):
  File "lake.py", line 83, in write_days
py4j.protocol.Py4JJavaError: An error occurred while calling o598.parquet.
: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file \
file:///var/log/gk/dt=1970-01-01/events-log-3-3.jsonl.gz.  SQLSTATE: KD001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError
Caused by: java.io.EOFException: Unexpected end of input stream
\t... 28 more
"""
NO_FOLDER = """\
An error occurred while calling o1407.start.
: org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: file:/tmp/afile
\tat org.apache.hadoop.fs.FileSystem
"""


def test_a_file_that_cannot_be_read_is_named_with_what_to_do():
    assert why(RuntimeError(DAMAGED)) == (
        "/var/log/gk/dt=1970-01-01/events-log-3-3.jsonl.gz cannot be read: it is cut off, damaged "
        "or missing. Replace it with a good copy. If there is none, move it away; its events are "
        "then reported as missing"
    )


def test_a_folder_that_does_not_exist_is_named():
    error = RuntimeError("[PATH_NOT_FOUND] Path does not exist: file:/srv/log. SQLSTATE: 42K03")
    assert why(error) == "/srv/log does not exist"


def test_a_worker_without_the_wheel_is_told_with_what_names_another_python():
    trace = (
        "Traceback (most recent call last):\nModuleNotFoundError: No module named 'groupkeeper'\n"
    )
    assert why(RuntimeError(f"Job aborted.\n{trace}")) == (
        "the Python of Spark's workers has no groupkeeper: set PYSPARK_PYTHON to one that has the "
        "wheel with its extra, at the same path on each of their machines"
    )


def test_of_anything_else_the_innermost_cause_is_told():
    assert why(RuntimeError(NO_FOLDER)).endswith("Parent path is not a directory: file:/tmp/afile")
    assert why(RuntimeError("")) == "RuntimeError"
    caused = RuntimeError("One thing.\nCaused by: a.B: another\n\tat x\nCaused by: c.D: the last\n")
    assert why(caused) == "c.D: the last"


WRONG_MASTER = """\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/22 08:28:54 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address
Exception in thread "main" org.apache.spark.SparkException: Master must either be yarn or local
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
"""
WRONG_MEMORY = """\
Invalid maximum heap size: -Xmxlots
Error: Could not create the Java Virtual Machine.
"""
OLD = """\
Error: A JNI error has occurred, please check your installation and try again
Exception in thread "main" java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main
"""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (WRONG_MASTER, "Spark cannot start: Master must either be yarn or local"),
        (WRONG_MEMORY, "Spark cannot start: Invalid maximum heap size: -Xmxlots"),
        ("JAVA_HOME is not set\n", "Spark needs Java 17, and finds no Java"),
        ("spark-class: line 97: /x/bin/java: No such file or directory\n", "Java 17, and finds no"),
        (OLD, "Spark needs Java 17, and the installed one is older"),
        ("", "Java ended without a message"),
    ],
)
def test_what_java_says_becomes_one_line(said: str, why: str) -> None:
    told = why_not_started(said)
    assert why in told
    assert "\n" not in told
