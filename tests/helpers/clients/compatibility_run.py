"""A pytest plugin that writes the outcomes of scenarios into docs/use/compatibility.md.

tests/conftest.py registers it. A conftest beside the tests could not: with workers, the main
process gets the results, but it collects no tests, and so does not load conftests of folders.
"""

from __future__ import annotations

import os

import pytest

from tests.helpers.clients import compatibility

_outcomes: dict[str, compatibility.Outcome] = {}
_KEPT = "groupkeeper/compatibility"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect the outcomes of scenarios with pinned clients.

    With workers, pytest calls this in the main process.
    """
    told = dict(report.user_properties)
    if "scenario" in told and (report.when == "call" or report.failed) and not report.skipped:
        outcome = compatibility.WORKS if report.passed else compatibility.FAILS
        name, version = str(told["scenario"]), str(told["version"])
        if compatibility.is_pinned(name, version):
            _outcomes[name] = compatibility.Outcome(version, outcome)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep the outcomes for later runs. With WRITE_COMPATIBILITY=1, write the document.

    It has the outcomes of this run, and for Python clients those of the last `make test` of this
    checkout. If a scenario did not run, the document is not changed, and this is reported.
    """
    if hasattr(session.config, "workerinput") or os.environ.get("CONFORMANCE_KAFKA"):
        return
    cache = getattr(session.config, "cache", None)  # absent under -p no:cacheprovider
    kept = cache.get(_KEPT, {}) if cache else {}
    kept.update({name: list(outcome) for name, outcome in _outcomes.items()})
    if cache and _outcomes:
        cache.set(_KEPT, kept)
    if os.environ.get("WRITE_COMPATIBILITY") == "1":
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        reporter.write_line(_write_document(kept))


def _write_document(kept: dict[str, list[str]]) -> str:
    """Write the document if every scenario ran. Return a line that says what was done."""
    of_python = {
        scenario.name
        for section in compatibility.SECTIONS
        if section.host == "python"
        for scenario in section.scenarios
    }
    known = [scenario.name for scenario in compatibility.scenarios()]
    outcomes = {
        name: compatibility.Outcome(*kept[name])
        for name in known
        if name in _outcomes or (name in of_python and name in kept)
    }
    missing = [name for name in known if name not in outcomes]
    if missing:
        return (
            f"docs/use/compatibility.md is not written: {len(missing)} scenarios did not run, "
            f"{missing[0]} for one (run make test, then make test-clients)"
        )
    compatibility.DOCUMENT.write_text(compatibility.render(outcomes))
    return "docs/use/compatibility.md is written"
