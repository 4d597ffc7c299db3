"""Small files in the tables' folder, through Hadoop. Each is read and replaced as a whole.

A reader sees the old content or the new content, and never a part. On a file system, a new file is
renamed over the old one. On an object store, a rename would be a copy, so one request replaces the
object when its writer is closed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from groupkeeper.pipeline.tables.lake import hadoop_path

OBJECT_STORES: Final = frozenset(("s3", "s3a", "s3n", "gs", "oss", "cosn", "obs"))
"""The schemes of object stores whose writers send an object as one request. Azure's writer does
not: it creates an empty file first."""


def read_file(spark: SparkSession, path: str) -> bytes | None:
    """Return the content of a file, or None if it does not exist."""
    place, file_system = hadoop_path(spark, path)
    if not file_system.exists(place):
        return None
    stream = file_system.open(place)
    try:
        return bytes(_jvm(spark).org.apache.commons.io.IOUtils.toByteArray(stream))
    finally:
        stream.close()


def replace_file(spark: SparkSession, path: str, content: bytes) -> None:
    """Write or replace a file. At any moment, a reader sees the old content or the new content.

    The folder is created if it does not exist.
    """
    place, file_system = hadoop_path(spark, path)
    scheme = file_system.getUri().getScheme()
    if (local := _local(place, file_system)) is not None:
        # Hadoop would write a checksum beside it, which cannot be replaced at the same moment
        replace_local(local, content)
    elif scheme in OBJECT_STORES:
        put(file_system, place, content)
    else:
        rename_over(spark, file_system, place, content)


def replace_local(place: Path, content: bytes) -> None:
    """Replace a file of this machine. After a crash, it has either the old content or the new
    content.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.with_name(f"_{place.name}")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(place)


def link_files(
    spark: SparkSession,
    folder: str,
    to_folder: str,
    is_wanted: Callable[[str], bool] = lambda _: True,
) -> None:
    """Add the files of ``folder`` to ``to_folder``: those for whose names ``is_wanted`` returns
    True. They also stay in ``folder``.

    On this machine the files are linked, so nothing is copied. Object stores and other file systems
    have no such links, so the files are copied.
    """
    place, file_system = hadoop_path(spark, folder)
    target, _ = hadoop_path(spark, to_folder)
    here, there = (_local(each, file_system) for each in (place, target))
    if here is not None and there is not None:
        link_local(here, there, is_wanted)
        return
    copy_files(spark, file_system, place, target, is_wanted)


def copy_files(
    spark: SparkSession,
    file_system: Any,
    folder: Any,
    to_folder: Any,
    is_wanted: Callable[[str], bool] = lambda _: True,
) -> None:
    """Copy the files of a folder into another folder of the same file system, whatever its kind."""
    copy = _jvm(spark).org.apache.hadoop.fs.FileUtil.copy
    # otherwise the first copied file would get the name of the folder
    file_system.mkdirs(to_folder)
    for each in file_system.listStatus(folder):
        if is_wanted(str(each.getPath().getName())):
            copy(file_system, each.getPath(), file_system, to_folder, False, file_system.getConf())


def link_local(
    folder: Path, to_folder: Path, is_wanted: Callable[[str], bool] = lambda _: True
) -> None:
    """Add the files of a folder to another folder of this machine, as hard links or as copies."""
    to_folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if not is_wanted(file.name):
            continue
        try:
            (to_folder / file.name).hardlink_to(file)
        except OSError:  # a file system without links, such as some mounts
            shutil.copy2(file, to_folder / file.name)


def put(file_system: Any, place: Any, content: bytes) -> None:
    """Create or overwrite a file. An object store shows the file only when all is written."""
    stream = file_system.create(place, True)
    stream.write(content)
    stream.close()  # not after an error in write: this would create an object with a part


def rename_over(spark: SparkSession, file_system: Any, place: Any, content: bytes) -> None:
    """Write a file under a temporary name, and rename it over the old file.

    For file systems such as HDFS, whose usual rename does not replace a file.
    """
    jvm = _jvm(spark)
    beside = jvm.org.apache.hadoop.fs.Path(place.getParent(), f"_{place.getName()}")
    put(file_system, beside, content)
    rename = getattr(jvm.org.apache.hadoop.fs, "Options$Rename")
    gateway: Any = spark.sparkContext._gateway
    options = gateway.new_array(rename, 1)
    options[0] = rename.OVERWRITE
    context = jvm.org.apache.hadoop.fs.FileContext.getFileContext(
        file_system.getUri(), file_system.getConf()
    )
    context.rename(file_system.makeQualified(beside), file_system.makeQualified(place), options)


def local_path(spark: SparkSession, path: str) -> Path | None:
    """Return the local path of a file or folder. Return None if it is not on this machine."""
    return _local(*hadoop_path(spark, path))


def _local(place: Any, file_system: Any) -> Path | None:
    if file_system.getUri().getScheme() != "file":
        return None
    return Path(file_system.makeQualified(place).toUri().getPath())


def _jvm(spark: SparkSession) -> Any:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return jvm
