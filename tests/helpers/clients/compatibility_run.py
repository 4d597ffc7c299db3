"""A pytest plugin that puts what the tests of scenarios found into docs/use/compatibility.md.

Registered by tests/conftest.py and not beside the tests: with workers, the process above them hears
of the results and collects nothing, so it loads no conftest of a folder below.
"""

from __future__ import annotations

import os

import pytest

from tests.helpers.clients import compatibility

_outcomes: dict[str, compatibility.Outcome] = {}
_KEPT = "groupkeeper/compatibility"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Gather what the tests of scenarios found with the pinned clients.

    With workers this is the process above them.
    """
    told = dict(report.user_properties)
    if "scenario" in told and (report.when == "call" or report.failed) and not report.skipped:
        outcome = compatibility.WORKS if report.passed else compatibility.FAILS
        name, version = str(told["scenario"]), str(told["version"])
        if compatibility.is_pinned(name, version):
            _outcomes[name] = compatibility.Outcome(version, outcome)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what was found; under WRITE_COMPATIBILITY=1 write the document.

    It is written from what ran alone: this run, and for the Python clients the last `make test` of
    this checkout. Where anything did not run, it is left as it is and that is said.
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
    """Write it if everything ran; tell what was done."""
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
