"""The pointer: one small file that names the folders of each table for each day (pure).

A run writes new folders, and then replaces this file. So all tables of all days change at one
moment. A reader reads the file once, and then uses the folders that it names: tables of one moment.
The replaced folders stay for a time, for readers that still use them.

The tables have three layers: bronze (events), silver (facts about groups) and gold (summaries). A
gap is missing events. Each event has a number, its ``seq``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Final

POINTER: Final = "published.json"
"""The name of the pointer in the tables' folder."""

FORMAT: Final = 1
"""The version of the pointer's format. ``from_json`` refuses every other version."""

PUBLISHED: Final = "published"
ACCEPTED: Final = "published with a gap"
STALE: Final = "published earlier"
"""The day was published before a gap was known. Its tables stay as they were."""
HELD_BACK: Final = "held back"
"""A gap was known before the day was ever published. The day has no tables."""

BRONZE, SILVER, GOLD = "bronze", "silver", "gold"
LAYERS: Final = (BRONZE, SILVER, GOLD)
CARRIED: Final = "_carried"
"""The layer of rows that a day carries to later days. It is removed together with bronze."""

HOUR_MS: Final = 3_600_000

Span = tuple[str, int, int]
"""A gap: the first log of a chain (the logs of one node, ``Coverage.chains``), and the first and
last missing seq.
"""


class UnknownFormat(Exception):
    """A newer or older version of groupkeeper wrote the pointer in another format. The message is
    one line.
    """


@dataclass(frozen=True)
class DayNote:
    """The state of a day, and the folders of its tables."""

    state: str
    fingerprint: str
    """A hash of the day's segments in bronze at the last run (``Coverage.fingerprint``). The tables
    were computed from these segments, except if the state is ``STALE`` or ``HELD_BACK``.
    """
    events: int
    missing: str
    """The missing events, as text for people."""
    computation: int
    """The version of the computation (``compute.COMPUTATION``) that wrote the tables; 0 if the day
    was computed before there were versions.
    """
    tables: Mapping[str, str] = field(default_factory=dict)
    """Maps each table that has rows of this day to the folder of these rows, below the tables'
    folder: ``gold/lag_1m`` to ``gold/lag_1m/dt=2026-11-21/v=17``."""
    batch: int = -1
    """The last batch of bronze when the day was computed; -1 if unknown."""

    @property
    def ground(self) -> tuple[str, str, int]:
        """The state, the fingerprint and the computation. If one of them changes, the day is
        computed again.
        """
        return self.state, self.fingerprint, self.computation

    @property
    def is_published(self) -> bool:
        return self.state != HELD_BACK

    @property
    def is_whole(self) -> bool:
        """Return True if the day is published and up to date: no event is missing, or the user
        accepted the gaps.
        """
        return self.state in (PUBLISHED, ACCEPTED)


@dataclass(frozen=True)
class Replaced:
    """The folders that one run replaced, and when."""

    at_ms: int
    folders: Sequence[str]


@dataclass(frozen=True)
class Pointer:
    """The content of the pointer: the valid folders, and the replaced ones, which are removed
    later.
    """

    version: int = 0
    """The number of the run that wrote the pointer. Folders of this run end in ``/v=<version>``. It
    is 0 if no such run has published tables.
    """
    days: Mapping[date, DayNote] = field(default_factory=dict)
    accepted: frozenset[Span] = frozenset()
    """The accepted gaps: days are published without these events."""
    replaced: Sequence[Replaced] = ()
    since: Mapping[str, date] = field(default_factory=dict)
    """The first day that is kept, for each layer (bronze, silver, gold) whose earlier days were
    removed because of their age."""

    @property
    def bronze_since(self) -> date:
        """Return the first day for which bronze may have events."""
        return self.since.get(BRONZE, date.min)

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
    """Return the folder into which a run writes the rows of a day."""
    return f"{table}/dt={day.isoformat()}/v={version}"


def has_version(folder: str) -> bool:
    """Return True if a folder has one version of a day (``v=17``). In tables from before 0.2.0.dev5
    the folder of a day has no versions.
    """
    return folder.rpartition("/")[2].startswith("v=")


def as_json(pointer: Pointer) -> bytes:
    """Return a pointer as the content of its file."""
    days = [
        {
            "dt": day.isoformat(),
            "state": note.state,
            "events": note.events,
            "missing": note.missing,
            "tables": dict(sorted(note.tables.items())),
            "fingerprint": note.fingerprint,
            "computation": note.computation,
            "batch": note.batch,
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
        "since": {layer: day.isoformat() for layer, day in sorted(pointer.since.items())},
    }
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def from_json(content: bytes) -> Pointer:
    """Parse the content of the file. Raises UnknownFormat if its format is not ``FORMAT``."""
    found = json.loads(content)
    if found["format"] != FORMAT:
        raise UnknownFormat(
            f"{POINTER} has format {found['format']}, and this version of groupkeeper reads "
            f"format {FORMAT}: use the version that wrote the tables, or a newer one"
        )
    replaced = [Replaced(each["at_ms"], each["folders"]) for each in found["replaced"]]
    accepted = frozenset((store, first, last) for store, first, last in found["accepted"])
    since = {layer: date.fromisoformat(day) for layer, day in found.get("since", {}).items()}
    return Pointer(found["version"], dict(_days(found["days"])), accepted, replaced, since)


def _days(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[date, DayNote]]:
    names = ("state", "fingerprint", "events", "missing", "computation", "tables")
    for row in rows:
        note = DayNote(*(row[name] for name in names))
        yield date.fromisoformat(row["dt"]), replace(note, batch=row.get("batch", -1))
