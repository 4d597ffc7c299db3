"""Starts Spark for a command, and reports failures of Spark in one line."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from groupkeeper.coordinator.cli.failing import FAILED, fail
from groupkeeper.coordinator.cli.pipeline.options import NO_CACHE
from groupkeeper.coordinator.cli.stopping import signals_kept

if TYPE_CHECKING:
    from groupkeeper.pipeline.spark.class_archive import ClassArchive


def start_spark(
    name: str,
    master: str | None,
    memory: str,
    input_bytes: int | None = None,
    settings: Mapping[str, str] | None = None,
    archive: ClassArchive | None = None,
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
                archive=archive,
            )
    except SparkNotStarted as error:
        fail(f"{error} ({', '.join(each for each in given if each)})", FAILED)
    except SPARK_ERRORS as error:
        fail(f"Spark cannot start: {why(error)} ({', '.join(filter(None, given))})", FAILED)


def archive_in(folder: Path | None) -> ClassArchive | None:
    """Return the archive of Java classes in a folder. If the folder is None, it is the cache folder
    of the user.

    Return None if the user wants no archive, or the cache folder cannot be used. Exit if ``folder``
    cannot be created."""
    if folder == NO_CACHE:
        return None
    from groupkeeper.pipeline.spark.class_archive import ClassArchive, usual_archive

    if folder is None:
        return usual_archive()
    try:
        return ClassArchive(folder)
    except OSError as error:
        fail(f"{folder}: Java classes cannot be kept there: {error.strerror}", FAILED)


def keep_classes(archive: ClassArchive | None) -> None:
    """End Spark if its JVM is the one that writes the archive, and wait for the archive."""
    if archive is not None and archive.is_written:
        where = f"{archive.file.parent}, 200 MB; --jvm-cache off keeps none"
        typer.echo(f"  keeping the classes of Spark's JVM for later commands ({where})", err=True)
        from groupkeeper.pipeline.spark.class_archive import end_spark

        end_spark(archive)


@contextmanager
def failures_told() -> Iterator[None]:
    """Inside the block, exit with FAILED and one line if a Spark job fails, if a file cannot be
    read or written, or if another version of groupkeeper wrote the tables.
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
    except OSError as error:  # of this process, such as a full disk
        place = f"{error.filename}: " if error.filename else ""
        fail(f"{place}{error.strerror or error}", FAILED)
