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
"""Every report that there is."""


def write_reports(
    scope: Scope, names: Iterable[str], folder: Path, say: Callable[[str], object]
) -> list[Path]:
    """Write some reports; returns the pages of those that have something to tell.

    Raises NoTables, and leaves what is in the folder, where the pipeline never ran.
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
