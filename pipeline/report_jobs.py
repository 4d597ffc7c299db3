"""The reports by name, and the job that writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from pipeline import report_audit, report_lag, report_rebalances
from pipeline.report import Build, NothingPublished, Scope, write_report

REPORTS: Final[Mapping[str, Build]] = {
    "lag": report_lag.build,
    "rebalances": report_rebalances.build,
    "audit": report_audit.build,
}
"""Every report that there is."""


def write_reports(
    scope: Scope, names: Iterable[str], folder: Path, say: Callable[[str], object]
) -> list[Path]:
    """Write some reports; returns the paths of their pages. One without rows is left out."""
    pages = []
    for name in names:
        try:
            report = REPORTS[name](scope)
        except NothingPublished:
            say(f"{name}: nothing to report")
            continue
        pages.append(write_report(report, scope, folder)[0])
        say(f"{name}: {len(report.rows):,} rows")
    return pages
