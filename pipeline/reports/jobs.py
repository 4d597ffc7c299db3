"""The reports by name, and the job that writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from groupkeeper.pipeline.reports import audit as report_audit
from groupkeeper.pipeline.reports import groups as report_groups
from groupkeeper.pipeline.reports import lag as report_lag
from groupkeeper.pipeline.reports import page
from groupkeeper.pipeline.reports import partitions as report_partitions
from groupkeeper.pipeline.reports import rebalances as report_rebalances
from groupkeeper.pipeline.reports import tenants as report_tenants
from groupkeeper.pipeline.reports.incidents import report as report_incidents
from groupkeeper.pipeline.reports.report import Build, Scope, head_line, write_report


@dataclass(frozen=True)
class ReportKind:
    """One of the reports that ``pipeline report`` can write."""

    title: str
    question: str
    """The question that the report answers, for the index."""
    build: Build


REPORTS: Final[Mapping[str, ReportKind]] = {
    "incidents": ReportKind(
        report_incidents.TITLE,
        "Which groups are in trouble, since when, and what to do?",
        report_incidents.build,
    ),
    "groups": ReportKind(
        report_groups.TITLE,
        "What did each group do? Search, sort, and look at one of them.",
        report_groups.build,
    ),
    "lag": ReportKind(
        report_lag.TITLE,
        "Which group falls behind, by how much, since when? How fast does it commit?",
        report_lag.build,
    ),
    "partitions": ReportKind(
        report_partitions.TITLE,
        "How far behind is each partition, for how long, and which member owns it?",
        report_partitions.build,
    ),
    "rebalances": ReportKind(
        report_rebalances.TITLE,
        "How often does a group rebalance, why, and for how long?",
        report_rebalances.build,
    ),
    "audit": ReportKind(
        report_audit.TITLE,
        "Who rewound, reset, restored or deleted offsets? Whose commits were refused?",
        report_audit.build,
    ),
    "tenants": ReportKind(
        report_tenants.TITLE,
        "How many commits, bytes and seconds of rebalances does each principal and client cost?",
        report_tenants.build,
    ),
}
"""All reports, in the order of their links."""

INDEX: Final = "index.html"
INDEX_TITLE: Final = "Reports"


def write_reports(
    scope: Scope, names: Iterable[str], folder: Path, say: Callable[[str], object]
) -> list[Path]:
    """Write some reports and the index. Return the pages that have content.

    Raises NoTables if the pipeline never ran. Then nothing is written.
    """
    scope.require_tables()
    for warning in scope.warnings():
        say(warning)
    asked = list(names)
    there = {name for name in REPORTS if name in asked or (folder / f"{name}.html").exists()}
    pages = {INDEX: INDEX_TITLE}
    pages |= {f"{name}.html": kind.title for name, kind in REPORTS.items() if name in there}
    written = []
    found = {}
    for name in asked:
        report = REPORTS[name].build(scope)
        count = write_report(report, scope, folder, pages)
        if report.content is not None:
            written.append(folder / f"{name}.html")
            found[name] = page.summary(report.content.figures)
            say(f"{name}: {'1 row' if count == 1 else f'{count:,} rows'}")
        else:
            nothing = f"nothing to report. {scope.why_nothing(report.says_nothing)}"
            found[name] = page.note(nothing)
            say(f"{name}: {nothing}")
    _write_index(scope, folder, pages, found)
    return written


def _write_index(
    scope: Scope, folder: Path, pages: Mapping[str, str], found: Mapping[str, str]
) -> None:
    """Write the index page: a link to the page of each report, and what the report found (HTML)."""
    earlier = page.note("written earlier, perhaps for other days")
    cards = [
        page.linked_card(
            f"{name}.html",
            kind.title,
            kind.question,
            found.get(name, earlier),
        )
        for name, kind in REPORTS.items()
        if f"{name}.html" in pages
    ]
    parts = [*map(page.warning, scope.warnings()), *cards]
    (folder / INDEX).write_text(page.page(INDEX_TITLE, head_line(scope), parts, pages))
