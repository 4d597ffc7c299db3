"""The reports by name, and the job that writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from groupkeeper.pipeline.reports import audit as report_audit
from groupkeeper.pipeline.reports import lag as report_lag
from groupkeeper.pipeline.reports import rebalances as report_rebalances
from groupkeeper.pipeline.reports.report import Build, Scope, write_report

REPORTS: Final[Mapping[str, Build]] = {
    "lag": report_lag.build,
    "rebalances": report_rebalances.build,
    "audit": report_audit.build,
}
"""All reports."""


def write_reports(
    scope: Scope, names: Iterable[str], folder: Path, say: Callable[[str], object]
) -> list[Path]:
    """Write some reports; return the pages that have content.

    Raises NoTables if the pipeline never ran, and leaves the folder unchanged.
    """
    scope.require_tables()
    for warning in scope.warnings():
        say(warning)
    pages = []
    for name in names:
        report = REPORTS[name](scope)
        page, *_ = write_report(report, scope, folder)
        if report.parts:
            pages.append(page)
            say(f"{name}: {len(report.rows):,} rows")
        else:
            say(f"{name}: nothing to report. {scope.why_nothing(report.says_nothing)}")
    return pages
