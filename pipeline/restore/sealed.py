"""Finds the undamaged segments (files of events) of a local folder, and which events are missing,
without Spark.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from groupkeeper.pipeline.log.coverage import Coverage
from groupkeeper.pipeline.log.held_segment import HeldSegment
from groupkeeper.pipeline.log.kinds import LOG_STARTED
from groupkeeper.pipeline.log.segment_files import (
    MANIFEST,
    SEGMENT_GLOB,
    Lacking,
    ManifestLines,
    parse_name,
)
from groupkeeper.pipeline.restore.standing import RestoreError

NONE_LACKING: Final[Mapping[str, str]] = {}


def coverage_of_log(log_dir: Path, lacking: Mapping[str, str] = NONE_LACKING) -> Coverage:
    """Return which events a local folder has, and which are missing, from the names of its
    segments.

    ``lacking`` has the problem of each missing or damaged segment, by path.
    """
    expected = (Lacking(*each, parse_name(each[0])).as_expected() for each in lacking.items())
    found = map(_held, right_segments(log_dir, lacking))
    held = [each for each in found if each is not None]
    return Coverage([*_with_previous(held, log_dir), *(each for each in expected if each)])


def right_segments(log_dir: Path, lacking: Collection[str]) -> list[Path]:
    """Return the undamaged segments of a folder. Raises RestoreError if it has no segment."""
    found = [path for path in log_dir.glob(f"dt=*/{SEGMENT_GLOB}") if _held(path)]
    if not found:
        raise RestoreError(f"{log_dir} holds no sealed segment: is it the daemon's log.dir?")
    return [path for path in found if f"{path.parent.name}/{path.name}" not in lacking]


def _held(path: Path) -> HeldSegment | None:
    name = parse_name(f"{path.parent.name}/{path.name}")
    if name is None:
        return None
    log_id, first, last, day = name
    if day is None:
        return None
    return HeldSegment(log_id, path.name, day, first, last, events=last - first + 1, seq_sum=0)


def _with_previous(held: Iterable[HeldSegment], log_dir: Path) -> list[HeldSegment]:
    """Return the segments with the name of their store. The first segment of each log also gets the
    fields of its ``log_started``, such as the previous log, if it has this event.
    """
    manifest = ManifestLines()
    with suppress(FileNotFoundError):
        manifest.add("", (log_dir / MANIFEST).read_bytes())
    parts = sorted(held, key=lambda part: (part.log_id, part.first_seq))
    completed, logs = [], set()
    for part in parts:
        part = part._replace(store=manifest.of(f"dt={part.dt}/{part.segment}").store)
        if part.log_id not in logs:
            logs.add(part.log_id)
            begin = _begin(log_dir / f"dt={part.dt}" / part.segment)
            part = part._replace(
                previous_log_id=begin.get("previous_log_id") or "",
                began_ms=begin.get("ts_ms", 0),
                store=part.store or begin.get("store", ""),
            )
        completed.append(part)
    return completed


def _begin(path: Path) -> dict[str, Any]:
    """Return the event ``log_started`` of a segment. Return an empty dictionary if the segment does
    not begin with it, or cannot be read.
    """
    with suppress(OSError, EOFError, zlib.error, ValueError), gzip.open(path) as lines:
        event: dict[str, Any] = json.loads(lines.readline())
        if event.get("kind") == LOG_STARTED:
            return event
    return {}
