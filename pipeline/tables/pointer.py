"""The pointer: one small file that names, for each day, the folders that its tables are in (pure).

A run writes new folders beside those that are valid, and then replaces this file. So all tables of
all days change at one moment, and a reader that has read the file keeps a set of tables that belong
together. The folders that were replaced stay for a time, for such readers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

POINTER: Final = "published.json"
"""Its name in the tables' folder."""

FORMAT: Final = 1
"""The version of its format. A reader of another version refuses it."""

PUBLISHED: Final = "published"
ACCEPTED: Final = "published with a gap"
STALE: Final = "published earlier"
"""Events are missing since the day was published: it stays as it was."""
HELD_BACK: Final = "held back"
"""Events were missing before the day was ever published: it has no tables."""

HOUR_MS: Final = 3_600_000

Span = tuple[str, int, int]
"""A store, and the first and last seq of a gap."""


class UnknownFormat(Exception):
    """Another version of groupkeeper wrote the pointer. The message is one line."""


@dataclass(frozen=True)
class DayNote:
    """What is known of a day, and where its tables are."""

    state: str
    fingerprint: str
    """A hash of the content of bronze that was last judged; the day was computed from it, unless it
    is stale or held back."""
    events: int
    missing: str
    """The missing events, as text for people."""
    computation: int
    """The version of the computation; 0 before versions existed."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """The folder of each table that has rows of this day, both relative to the tables' folder:
    ``gold/lag_1m`` is in ``gold/lag_1m/dt=2026-11-21/v=17``.
    """

    @property
    def ground(self) -> tuple[str, str, int]:
        """Return the values whose change makes the day be computed again."""
        return self.state, self.fingerprint, self.computation

    @property
    def is_published(self) -> bool:
        return self.state != HELD_BACK


@dataclass(frozen=True)
class Replaced:
    """Folders that one run replaced, and the time."""

    at_ms: int
    folders: Sequence[str]


@dataclass(frozen=True)
class Pointer:
    """What is valid."""

    version: int = 0
    """The number of the run that wrote it; folders of that run end in ``/v=<version>``."""
    days: Mapping[date, DayNote] = field(default_factory=dict)
    accepted: frozenset[Span] = frozenset()
    """The gaps that days are published with."""
    replaced: Sequence[Replaced] = ()

    @property
    def published_days(self) -> list[date]:
        return sorted(day for day, note in self.days.items() if note.is_published)

    def folders(self, table: str) -> dict[date, str]:
        """Return the folder of a table for each day on which it has rows, by day."""
        return {
            day: note.tables[table]
            for day, note in sorted(self.days.items())
            if table in note.tables
        }


def folder_of(table: str, day: date, version: int) -> str:
    """Return the folder that a run writes the rows of a day to."""
    return f"{table}/dt={day.isoformat()}/v={version}"


def has_version(folder: str) -> bool:
    """Return True for a folder of a run. Tables of 0.2.0.dev3 have one folder for each day."""
    return folder.rpartition("/")[2].startswith("v=")


def as_json(pointer: Pointer) -> bytes:
    """Return the content of the file."""
    days = [
        {
            "dt": day.isoformat(),
            "state": note.state,
            "events": note.events,
            "missing": note.missing,
            "tables": dict(sorted(note.tables.items())),
            "fingerprint": note.fingerprint,
            "computation": note.computation,
        }
        for day, note in sorted(pointer.days.items())
    ]
    replaced = [{"at_ms": each.at_ms, "folders": list(each.folders)} for each in pointer.replaced]
    content = {
        "format": FORMAT,
        "version": pointer.version,
        "days": days,
        "accepted": [list(each) for each in sorted(pointer.accepted)],
        "replaced": replaced,
    }
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def from_json(content: bytes) -> Pointer:
    """Return the pointer. Raises UnknownFormat."""
    found = json.loads(content)
    if found["format"] != FORMAT:
        raise UnknownFormat(
            f"{POINTER} has format {found['format']}, and this version of groupkeeper reads "
            f"format {FORMAT}: use the version that wrote the tables, or a newer one"
        )
    replaced = [Replaced(each["at_ms"], each["folders"]) for each in found["replaced"]]
    accepted = frozenset((store, first, last) for store, first, last in found["accepted"])
    return Pointer(found["version"], dict(_days(found["days"])), accepted, replaced)


def _days(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[date, DayNote]]:
    names = ("state", "fingerprint", "events", "missing", "computation", "tables")
    for row in rows:
        yield date.fromisoformat(row["dt"]), DayNote(*(row[name] for name in names))
