"""The audit: every rewind, reset, restore and delete, and every refused commit, with its client."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Final

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from groupkeeper.pipeline.reports import charts, page
from groupkeeper.pipeline.reports.report import (
    Report,
    Rows,
    Scope,
    buckets,
    collect,
    listed,
    with_text_day,
)

TITLE = "Audit"

ACTIONS: Final = {
    "rewind": "rewind",
    "reset": "reset",
    "restore": "restore",
    "delete": "offset deletion",
    "group_delete": "group deletion",
    "expire": "expiry",
    "rejected": "refusal",
    "admin": "administration",
}
"""The page's words for the actions of ``gold.audit``."""

COUNTED: Final = {
    "rewind": ("rewind", "rewinds"),
    "reset": ("reset", "resets"),
    "restore": ("restore", "restores"),
    "delete": ("deletion of offsets", "deletions of offsets"),
    "group_delete": ("group deleted", "groups deleted"),
    "expire": ("expiry of offsets", "expiries of offsets"),
    "rejected": ("commit refused", "commits refused"),
    "admin": ("act of administration", "acts of administration"),
}
"""The singular and plural of each action."""

MAX_NAMED: Final = 4
"""Partitions that a line names."""


def build(scope: Scope) -> Report:
    """Compute the audit of the groups and days in ``scope``; the latest action is first."""
    found = with_text_day(scope.gold("audit"))
    rows = collect(found.orderBy(F.desc("ts_ms"), F.desc("seq")))
    return Report(
        "audit",
        TITLE,
        _parts(rows) if rows else [],
        rows,
        to_arrow_schema(found.schema),
        "No offset was rewound, reset, restored or deleted, and no commit was refused.",
    )


def _parts(rows: Rows) -> list[str]:
    span, _ = buckets([row["ts_ms"] for row in rows])
    counted: Counter[str] = Counter()
    for row in rows:
        counted[row["action"]] += row["count"]  # consecutive refusals of one member are one row
    dots: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for row in rows[:5000]:
        says = f"{charts.moment(row['ts_ms'])} {row['name']}: {_what(row)}"
        dots[ACTIONS[row["action"]]].append((row["ts_ms"], says))
    ordered = {name: dots[name] for name in ACTIONS.values() if name in dots}
    return [
        page.tiles(
            {
                names[counted[action] > 1]: counted[action]
                for action, names in COUNTED.items()
                if counted[action]
            }
        ),
        page.section("When", "Point at a dot for details.", charts.dot_chart(ordered, span)),
        page.section(
            "What was done, and by whom",
            "A reset is a commit from outside a group, by an administrator or a consumer without a "
            "group. A refused commit is that of a member that no longer belongs to the group, a "
            "zombie. Messages back and forward are those between the old and the new offsets of "
            "all partitions.",
            listed("audit", rows, _shown, "There were none."),
        ),
    ]


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    back, forward = _messages(row)
    return {
        "time (UTC)": charts.moment(row["ts_ms"]),
        "what": ACTIONS[row["action"]],
        "group": row["name"],
        "changed": _what(row),
        "messages back": back,
        "messages forward": forward,
        "client": row["client_id"],
        "host": row["client_host"],
        "principal": row["principal"],
    }


def _messages(row: dict[str, Any]) -> tuple[int | None, int | None]:
    """Return the messages back and forward. Older days have only their sum."""
    total = row["messages"]
    if total is None or row["messages_back"] is not None:
        return row["messages_back"], row["messages_forward"]
    return max(-total, 0), max(total, 0)


def _what(row: dict[str, Any]) -> str:
    """Describe the change in a few words."""
    changes = row["changes"] or []
    named = [
        f"{c['topic']}-{c['partition']}: {_offset(c['from'])} to {_offset(c['to'])}"
        for c in changes[:MAX_NAMED]
    ]
    if row["partitions"] and row["partitions"] > len(named):
        named.append(f"and {row['partitions'] - len(named)} more")
    # an error keeps Kafka's name, since people search for it
    detail = row["detail"] if row["detail"].isupper() else row["detail"].replace("_", " ")
    times = f" ({row['count']} times)" if (row["count"] or 1) > 1 else ""
    return ", ".join(filter(None, [detail, *named])) + times


def _offset(value: int | None) -> str:
    return "none" if value is None else str(value)
