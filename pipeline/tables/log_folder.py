"""The folder of a log, read through Spark: its segments (files of events), manifests (lists of
segments) and checksums.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from groupkeeper.pipeline.log.segment_files import MANIFEST, SEGMENT_GLOB, ManifestLines
from groupkeeper.pipeline.spark.session import is_small
from groupkeeper.pipeline.tables.bronze import read_segments
from groupkeeper.pipeline.tables.files import local_path, read_file
from groupkeeper.pipeline.tables.lake import DAY, hadoop_path, is_hidden


class LogFile(NamedTuple):
    """A file in a listing of the folder, with its size and modification time."""

    file: str
    """The path below the log's folder."""
    file_bytes: int
    modified_ms: int


class FolderContent(NamedTuple):
    """The checksum of a file, with the size and time that the file had when the checksum was
    computed.
    """

    file_bytes: int
    modified_ms: int
    sha256: str


EMPTY: Final = FolderContent(0, 0, hashlib.sha256().hexdigest())
"""The content of an empty file."""


class LogFolder:
    """A folder with segments of the event log, local or in an object store. The Spark cluster must
    be able to read it.
    """

    def __init__(self, spark: SparkSession, address: str) -> None:
        """Use the folder at this address. This reads nothing yet."""
        self._spark = spark
        path, file_system = hadoop_path(spark, address)
        self._root = str(file_system.makeQualified(path).toString()).rstrip("/") + "/"
        place = local_path(spark, address) if is_small(spark) else None
        self._local = place if place is not None and place.is_dir() else None
        """The folder, if it is on this machine and the data is small: then it is read without
        Spark. Otherwise None.
        """

    def files(self) -> list[LogFile]:
        """List the segments below the folder. Raises an error of Spark if there is no folder."""
        if self._local is not None:
            return sorted(LogFile(file, *_seen(self._local / file)) for file in _below(self._local))
        found = self._binary(self._root).select("path", "length", "modificationTime")
        files = {
            file: LogFile(file, row["length"], _ms(row["modificationTime"]))
            for row in found.collect()
            if (file := self._below(row["path"]))
        }
        # Spark returns no rows for empty files
        root = urlsplit(self._root).path
        for path in found.inputFiles():
            file = unquote(urlsplit(path).path).removeprefix(root)
            files.setdefault(file, LogFile(file, EMPTY.file_bytes, EMPTY.modified_ms))
        return sorted(files.values())

    def manifest(self, files: Iterable[str]) -> ManifestLines:
        """Read all manifests: of the folder, and of each folder below it that has folders of days.

        ``files`` are the paths of the segments.
        """
        marker = f"{DAY}="
        folders = {file[: file.rfind(marker)] for file in files if f"/{marker}" in f"/{file}"}
        found = ManifestLines()
        for folder in sorted({"", *folders}):
            content = self._text(folder + MANIFEST)
            if content is not None:
                found.add(folder, content)
        return found

    def is_there(self, file: str) -> bool:
        """Return True if a file exists now."""
        path, file_system = hadoop_path(self._spark, self._root + file)
        return bool(file_system.exists(path))

    def contents(self, files: Sequence[str]) -> dict[str, FolderContent]:
        """Return the checksum of each file, by its path. Missing files are left out."""
        there = [file for file in files if self.is_there(file)]
        if not there:
            return {}
        if self._local is not None:
            found_here = ((file, _content(self._local / file)) for file in there)
            return {file: content for file, content in found_here if content is not None}
        paths = [self._root + file for file in there]
        rows = self._binary(*paths).select(
            "path", "length", "modificationTime", F.sha2("content", 256).alias("sha256")
        )
        found = {
            self._below(row["path"]): FolderContent(
                row["length"], _ms(row["modificationTime"]), row["sha256"]
            )
            for row in rows.collect()
        }
        return dict.fromkeys(there, EMPTY) | found

    def events(self, files: Iterable[str]) -> DataFrame:
        return read_segments(self._spark, *(self._root + file for file in files))

    def _binary(self, *paths: str) -> DataFrame:
        reader = self._spark.read.format("binaryFile").option("pathGlobFilter", SEGMENT_GLOB)
        return reader.option("recursiveFileLookup", "true").load(list(paths))

    def _below(self, path: str) -> str:
        return path.removeprefix(self._root)

    def _text(self, file: str) -> bytes | None:
        return read_file(self._spark, self._root + file)


def _below(root: Path) -> Iterator[str]:
    """Yield the paths of the segments below a local folder. Spark would list the same files."""
    for place, folders, names in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not is_hidden(name)]
        below = Path(place).relative_to(root)
        yield from (str(below / name) for name in names if fnmatchcase(name, SEGMENT_GLOB))


def _seen(file: Path) -> tuple[int, int]:
    """Return the size and the modification time (ms) of a file. For an empty or missing file,
    return the two values of ``EMPTY``.
    """
    try:
        found = file.stat()
    except FileNotFoundError:  # retention removed it now
        return EMPTY[:2]
    return (found.st_size, found.st_mtime_ns // 1_000_000) if found.st_size else EMPTY[:2]


def _content(file: Path) -> FolderContent | None:
    size, modified_ms = _seen(file)
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except FileNotFoundError:
        return None
    return FolderContent(size, modified_ms, digest)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
