"""What the last run saw and said, so that a run without anything new ends before Spark starts.

It is no record of work that is done: a run ends early only if everything that its result depends on
is as the last run left it. If the file is missing, or anything differs, the run looks for itself.
Only folders of this machine can be compared without Spark.
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
from typing import Final

from groupkeeper.pipeline.log.segment_files import MANIFEST
from groupkeeper.pipeline.tables.lake_lock import local_folder
from groupkeeper.pipeline.tables.pointer import HOUR_MS, POINTER, from_json

FILE: Final = "_last_run.json"
"""Its name in the tables' folder; Spark ignores names that begin with an underscore."""

_BRONZE: Final = ("bronze/segments", "bronze/verdicts", "bronze/lacking")
"""The small tables of bronze: whatever writes events also writes to one of them."""


@dataclass(frozen=True)
class Folder:
    """The files of one folder, without those below it."""

    file_bytes: int
    digest: str
    """A hash of their names, sizes and times."""


@dataclass(frozen=True)
class Sight:
    """Everything that the result of a run depends on."""

    software: str
    accept_gaps: Sequence[str]
    log_dir: str
    log: Mapping[str, Folder]
    """The folders of the log, by their paths below it."""


@dataclass(frozen=True)
class LastRun:
    """The last run that ended."""

    saw: Sight
    tables: str
    """A hash of the tables as it left them."""
    lines: Sequence[str]
    """What a run would say that finds nothing new."""
    is_sound: bool


def sight(log_dir: str, accept_gaps: Collection[date]) -> Sight | None:
    """Return what a run would see now. Return None if the log is not on this machine."""
    folder = local_folder(log_dir)
    if folder is None:
        return None
    gaps = sorted({str(day) for day in accept_gaps})
    return Sight(_software(), gaps, str(folder.resolve()), dict(_folders(folder, _is_of_log)))


def last_run(out: str) -> LastRun | None:
    """Return the last run, or None if there was none, or another version wrote it."""
    folder = local_folder(out)
    try:
        content = json.loads((folder or Path()).joinpath(FILE).read_bytes())
        saw = content.pop("saw")
        log = {path: Folder(**each) for path, each in saw.pop("log").items()}
        return LastRun(Sight(**saw, log=log), **content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def says(
    last: LastRun | None, now: Sight | None, out: str, keep_versions_hours: float, now_ms: int
) -> LastRun | None:
    """Return the last run if a run would find nothing new and remove nothing; otherwise None."""
    folder = local_folder(out)
    if last is None or now is None or folder is None or last.saw != now:
        return None
    if last.tables != _tables(folder):
        return None
    pointer = from_json((folder / POINTER).read_bytes())  # as this version of the software wrote it
    keep_ms = keep_versions_hours * HOUR_MS
    is_due = any(now_ms - each.at_ms >= keep_ms for each in pointer.replaced)
    return None if is_due else last


def content_of(saw: Sight, out: str, lines: Sequence[str], *, is_sound: bool) -> bytes | None:
    """Return the content of the file after a run; None if the tables are not on this machine."""
    folder = local_folder(out)
    if folder is None:
        return None
    content = asdict(LastRun(saw, _tables(folder), lines, is_sound))
    return (json.dumps(content, indent=1) + "\n").encode()


def bytes_to_read(last: LastRun | None, now: Sight | None, out: str) -> int | None:
    """Return about how many bytes a run will read: those of the days that have new files, and of
    all later days. Return None if that is not known.
    """
    tables = local_folder(out)
    if now is None or tables is None:
        return None
    before: Mapping[str, Folder] = {}
    if last is not None and last.saw.software == now.software and last.tables == _tables(tables):
        before = last.saw.log
    paths = {*before, *now.log}
    days = {_day(path) for path in paths if before.get(path) != now.log.get(path)}
    first = min(days, default="9999")
    bronze = _folders(tables / "bronze" / "events")
    both = [*now.log.items(), *bronze]
    return sum(each.file_bytes for path, each in both if _day(path) >= first)


def bytes_below(folder: str) -> int | None:
    """Return the size of the files below a folder. Return None if it is not on this machine."""
    place = local_folder(folder)
    return None if place is None else sum(each.file_bytes for _, each in _folders(place))


def _day(path: str) -> str:
    """Return the day of a folder; "" for a folder of no day, which may have files of any."""
    return path.rpartition("dt=")[2].partition("/")[0] if "dt=" in path else ""


def _software() -> str:
    try:
        return importlib.metadata.version("groupkeeper")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _tables(folder: Path) -> str:
    """Return a hash of what is valid, and of the names in the small tables of bronze."""
    pointer = folder / POINTER
    digest = hashlib.sha256(pointer.read_bytes() if pointer.exists() else b"")
    for table in _BRONZE:
        for path, each in sorted(_folders(folder / table)):
            digest.update(f"{path} {each.digest}\n".encode())
    return digest.hexdigest()


def _is_of_log(name: str) -> bool:
    return name == MANIFEST or name.endswith(".jsonl.gz")


def _folders(
    root: Path, is_wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[tuple[str, Folder]]:
    """Return each folder below a folder that has such files, and itself."""
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
