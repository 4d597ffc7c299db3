"""Start Spark for a command, and report its failures in one line."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from groupkeeper.coordinator.cli.failing import FAILED, fail
from groupkeeper.coordinator.cli.stopping import signals_kept


def start_spark(
    name: str,
    master: str | None,
    memory: str,
    input_bytes: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """Return a Spark session. If Spark cannot start, print one line that says why, and exit."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        fail("Java 17 is needed, and there is no java on the PATH", FAILED)
    typer.echo("  starting Spark", err=True)
    from groupkeeper.pipeline.spark.failure import why
    from groupkeeper.pipeline.spark.launch import SparkNotStarted
    from groupkeeper.pipeline.spark.session import SPARK_ERRORS, spark_session

    given = (f"--master {master}" if master else "", f"--memory {memory}")
    try:
        with signals_kept():
            return spark_session(
                name,
                master=master,
                driver_memory=memory,
                input_bytes=input_bytes,
                settings=settings,
            )
    except SparkNotStarted as error:
        fail(f"{error} ({', '.join(each for each in given if each)})", FAILED)
    except SPARK_ERRORS as error:
        fail(f"Spark cannot start: {why(error)} ({', '.join(filter(None, given))})", FAILED)


@contextmanager
def failures_told() -> Iterator[None]:
    """Inside the block: if a Spark job fails, or a newer version wrote the tables, exit with one
    line.
    """
    from groupkeeper.pipeline.spark.failure import why
    from groupkeeper.pipeline.spark.session import SPARK_ERRORS
    from groupkeeper.pipeline.tables.pointer import UnknownFormat

    try:
        yield
    except UnknownFormat as error:
        fail(str(error), FAILED)
    except SPARK_ERRORS as error:
        fail(why(error), FAILED)
