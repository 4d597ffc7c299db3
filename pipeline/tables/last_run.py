"""A file with the inputs and the printed lines of the last run. If a run finds the same inputs, it
prints the same lines and ends before it starts Spark.

The file only saves time. If it is missing, or any input differs, the run does all its checks with
Spark. Only folders of this machine can be compared without Spark.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from groupkeeper.pipeline.log.segment_files import MANIFEST
from groupkeeper.pipeline.tables.lake_lock import local_folder
from groupkeeper.pipeline.tables.pointer import HOUR_MS, POINTER, UnknownFormat, from_json

FILE: Final = "_last_run.json"
"""The name of the file in the tables' folder. Spark ignores names that begin with an underscore."""

_BRONZE: Final = ("bronze/segments", "bronze/verdicts", "bronze/lacking")
"""The small tables of bronze, the layer of events. Each write of events also writes to one of them.
"""


@dataclass(frozen=True)
class Folder:
    """The files of one folder, without the files in its sub-folders."""

    file_bytes: int
    digest: str
    """A hash of the names, sizes and modification times of the files."""


@dataclass(frozen=True)
class Sight:
    """The inputs of a run: everything on which its result depends, except the tables."""

    software: str
    accept_gaps: Sequence[str]
    retention_days: Mapping[str, int]
    log_dir: str
    log: Mapping[str, Folder]
    """Maps each folder that has segments (files of events) to its files. The path is below the
    log's folder.
    """
    manifests: Mapping[str, Folder]
    """Maps each folder that has a manifest (a list of segments) to this file. The path is below the
    log's folder.
    """


@dataclass(frozen=True)
class LastRun:
    """The content of the file: the inputs and the result of a run."""

    saw: Sight
    tables: str
    """A hash of the tables at the end of the run."""
    lines: Sequence[str]
    """The lines that a run prints if it finds nothing new."""
    is_sound: bool


def sight(
    log_dir: str, accept_gaps: Collection[date], retention_days: Mapping[str, int]
) -> Sight | None:
    """Return the inputs that a run has now. Return None if the log is not on this machine."""
    folder = local_folder(log_dir)
    if folder is None:
        return None
    gaps = sorted({str(day) for day in accept_gaps})
    log = dict(_folders(folder, lambda name: name.endswith(".jsonl.gz")))
    manifests = dict(_folders(folder, lambda name: name == MANIFEST))
    place = str(folder.resolve())
    return Sight(_software(), gaps, dict(retention_days), place, log, manifests)


def last_run(out: str) -> LastRun | None:
    """Read what the last run wrote to the file. Return None if there is no file, or if another
    version wrote it in another form.
    """
    folder = local_folder(out)
    try:
        content = json.loads((folder or Path()).joinpath(FILE).read_bytes())
        saw = content.pop("saw")
        log, manifests = (_as_folders(saw.pop(name)) for name in ("log", "manifests"))
        return LastRun(Sight(**saw, log=log, manifests=manifests), **content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def says(
    last: LastRun | None, now: Sight | None, out: str, keep_versions_hours: float, now_ms: int
) -> LastRun | None:
    """Return the last run if its lines are still right: a run now would find nothing new and would
    remove nothing. Otherwise return None.

    A run removes folders that were replaced at least ``keep_versions_hours`` ago.
    """
    folder = local_folder(out)
    if last is None or now is None or folder is None or last.saw != now:
        return None
    if last.tables != _tables(folder):
        return None
    pointer = from_json((folder / POINTER).read_bytes())  # this version wrote it
    keep_ms = keep_versions_hours * HOUR_MS
    is_due = any(now_ms - each.at_ms >= keep_ms for each in pointer.replaced)
    return None if is_due else last


def content_of(saw: Sight, out: str, lines: Sequence[str], *, is_sound: bool) -> bytes | None:
    """Return what to write to the file after a run. Return None if the tables are not on this
    machine.
    """
    folder = local_folder(out)
    if folder is None:
        return None
    content = asdict(LastRun(saw, _tables(folder), lines, is_sound))
    return (json.dumps(content, indent=1) + "\n").encode()


def bytes_to_read(last: LastRun | None, now: Sight | None, out: str) -> int | None:
    """Return about how many bytes a run will read, from which Spark's settings are chosen. Return
    None if that is unknown.

    A run reads the new files. Of a day that only gets new events, it reads tables, and of tables
    with minutes the newest file. Of any other day it reads the events of bronze. It also reads the
    rows that the day before carries, such as committed offsets. If old files were replaced, or late
    events came, a run reads more. Then it changes the settings itself
    (``pipeline.tables.compute``).
    """
    tables = local_folder(out)
    if now is None or tables is None:
        return None
    before: Mapping[str, Folder] = {}
    if last is not None and last.saw.software == now.software and last.tables == _tables(tables):
        before = last.saw.log
    paths = {*before, *now.log}
    changed = {path for path in paths if before.get(path) != now.log.get(path)}
    new_bytes = sum(_bytes(now.log, path) - _bytes(before, path) for path in changed)
    first = min(map(_day, changed), default="9999")
    grown = _grown_bytes(tables, first) if before else {}
    bronze = _folders(tables / "bronze" / "events")
    again = sum(
        each.file_bytes
        for path, each in bronze
        if (day := _day(path)) >= first and day not in grown
    )
    return max(new_bytes, 0) + again + sum(grown.values())


def _grown_bytes(tables: Path, first: str) -> dict[str, int]:
    """Map the day ``first``, each later day and the last day before ``first`` to the bytes of its
    tables that a run reads. Days that need more than new events are left out.
    """
    from groupkeeper.pipeline.tables.compute import COMPUTATION, LIVES_TABLE
    from groupkeeper.pipeline.tables.hours import BY_HOUR

    try:
        days = from_json((tables / POINTER).read_bytes()).days
    except (OSError, UnknownFormat):  # a run reports UnknownFormat later
        return {}
    before = max((str(day) for day in days if str(day) < first), default="")
    found: dict[str, int] = {}
    for day, note in sorted(days.items()):
        is_whole = note.computation == COMPUTATION and LIVES_TABLE in note.tables
        if str(day) < before or (str(day) >= first and not is_whole):
            continue
        for table in _OF_DAY_BEFORE if str(day) == before else (*_OF_GROWN_DAY, *BY_HOUR):
            files = sorted((tables / note.tables.get(table, "none")).glob("*.parquet"))
            if table in BY_HOUR and str(day) == first:
                files = files[-1:]
            size = sum(file.stat().st_size for file in files)
            found[str(day)] = found.get(str(day), 0) + size
    return found


_OF_DAY_BEFORE: Final = ("_carried/events", "_carried/offsets", "_carried/ends")
"""The tables of the day before that a run reads."""
_OF_GROWN_DAY: Final = (*_OF_DAY_BEFORE, "_carried/lives", "gold/audit")
"""The tables of a day that a run reads if the day only gets new events."""


def _bytes(folders: Mapping[str, Folder], path: str) -> int:
    return folders[path].file_bytes if path in folders else 0


def bytes_below(folder: str) -> int | None:
    """Return the bytes of all files below a folder. Return None if it is not on this machine."""
    place = local_folder(folder)
    return None if place is None else sum(each.file_bytes for _, each in _folders(place))


def _as_folders(content: Mapping[str, Mapping[str, Any]]) -> dict[str, Folder]:
    return {path: Folder(**each) for path, each in content.items()}


def _day(path: str) -> str:
    """Return the day of a folder. Return "" if the folder belongs to no day: its files may be of
    any day.
    """
    return path.rpartition("dt=")[2].partition("/")[0] if "dt=" in path else ""


def _software() -> str:
    try:
        return importlib.metadata.version("groupkeeper")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _tables(folder: Path) -> str:
    """Return a hash of the pointer (the file that names the valid folders), and of the files in the
    small tables of bronze: their names, sizes and times.
    """
    pointer = folder / POINTER
    digest = hashlib.sha256(pointer.read_bytes() if pointer.exists() else b"")
    for table in _BRONZE:
        for path, each in sorted(_folders(folder / table)):
            digest.update(f"{path} {each.digest}\n".encode())
    return digest.hexdigest()


def _folders(
    root: Path, is_wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[tuple[str, Folder]]:
    """Yield the path of each folder at or below ``root`` that has wanted files, with their size and
    digest.
    """
    for place, _, every_name in os.walk(root):
        names = list(filter(is_wanted, every_name))
        if not names:
            continue
        stats = [(name, _stat(Path(place, name))) for name in sorted(names)]
        text = json.dumps(stats)
        size = sum(stat[0] for _, stat in stats)
        digest = hashlib.sha256(text.encode()).hexdigest()
        yield str(Path(place).relative_to(root)), Folder(size, digest)


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:  # retention removed it now
        return 0, 0
    return found.st_size, found.st_mtime_ns
