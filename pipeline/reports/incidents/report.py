"""The report on incidents. Open incidents are first, with an SQL query for their rows, and with
what to do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from groupkeeper.pipeline.reports import charts, page
from groupkeeper.pipeline.reports.incidents.find import FoundIncidents, find
from groupkeeper.pipeline.reports.report import MAX_ROWS, PageContent, Report, Scope, lag_note
from groupkeeper.pipeline.reports.row_files import Rows

TITLE: Final = "Incidents"

_TEXT: Final = ("id", "rule", "severity", "state", "title", "group", "name", "store", "subject")
_MORE_TEXT: Final = ("unit", "who", "detail", "evidence", "report", "what_to_do")
_NUMBERS: Final = ("started_ms", "ended_ms", "last_ms", "amount", "findings")
SCHEMA: Final = pa.schema(
    [(name, pa.string()) for name in (*_TEXT, *_MORE_TEXT)]
    + [(name, pa.int64()) for name in _NUMBERS]
)
"""The columns of the report's Parquet, CSV and JSON files: one row for each incident."""


_LINKS: Final = {"group": "groups.html"}


def build(scope: Scope) -> Report:
    """Return the report on the incidents of the groups and days in ``scope``."""
    return of(find(scope))


def of(found: FoundIncidents) -> Report:
    """Return the report of these incidents."""
    return Report(
        "incidents",
        TITLE,
        _content(found) if found.incidents else None,
        found.incidents,
        SCHEMA,
        "No rule found an incident.",
    )


def _content(found: FoundIncidents) -> PageContent:
    over = [each for each in found.incidents if each["state"] == "over"]
    severe = sum(each["severity"] == "critical" for each in found.open)
    left_out = (
        [page.warning(f"{found.left_out:,} more incidents are left out.")] if found.left_out else []
    )
    figures = {
        "open": len(found.open),
        "of them critical": severe,
        "over": len(over),
        "groups": len({(each["store"], each["group"]) for each in found.incidents}),
    }
    parts = [
        *left_out,
        page.section(
            "Open",
            f"Incidents that last until the end of the tables, {charts.moment(found.as_of_ms)}, or "
            "happened shortly before it.",
            _cards(found.open),
        ),
        page.section(
            "Over",
            "The most severe first.",
            page.table(
                [_shown(each) for each in over[:MAX_ROWS]],
                "No incident is over.",
                total=len(over),
                whole="incidents.csv",
                links=_LINKS,
            ),
        ),
    ]
    return PageContent(figures, parts, lag_note(found.sampled_ms))


def _cards(incidents: Rows) -> str:
    if not incidents:
        return page.table([], "No incident is open.")
    cards = [
        page.card(
            f"{each['severity']}: {each['title']}",
            f"{each['name']} {each['subject']}".strip(),
            {
                "since (UTC)": charts.moment(each["started_ms"]),
                "how much": f"{each['amount']:,} {each['unit']}",
                "who": each["who"],
                "details": each["detail"],
                "what to do": each["what_to_do"],
            },
            evidence=each["evidence"],
            link=page.link(each["report"], f"the report on {Path(each['report']).stem}"),
        )
        for each in incidents[:MAX_CARDS]
    ]
    rest = page.table(
        [_shown(each) for each in incidents[MAX_CARDS:MAX_ROWS]],
        "",
        total=len(incidents) - MAX_CARDS,
        whole="incidents.csv",
        links=_LINKS,
    )
    return "".join(cards) + (rest if len(incidents) > MAX_CARDS else "")


MAX_CARDS: Final = 5
"""The largest number of open incidents with a card that shows all details. Further incidents are
rows of a table, because a card fills half of a telephone's screen."""


def _shown(each: dict[str, Any]) -> dict[str, Any]:
    return {
        "time (UTC)": charts.moment(each["started_ms"]),
        "minutes": (each["last_ms"] - each["started_ms"]) / 60_000,
        "severity": each["severity"],
        "what": each["title"],
        "group": each["name"],
        "subject": each["subject"],
        "how much": each["amount"],
        "of": each["unit"],
        "who": each["who"],
        "details": each["detail"],
    }
