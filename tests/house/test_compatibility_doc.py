"""docs/use/compatibility.md is written by the test run, and has a row for every scenario."""

from __future__ import annotations

import re

import pytest

from tests.helpers.clients import compatibility, compatibility_run
from tests.helpers.clients.compatibility import DOCUMENT, WORKS, Outcome
from tests.helpers.clients.ecosystem import PROGRAMS

ROWS = compatibility.parse(DOCUMENT.read_text())
ALONE = "aiokafka/a-member-alone-gets-every-partition"


def test_every_scenario_has_a_row_and_every_row_a_scenario():
    assert list(ROWS) == [scenario.name for scenario in compatibility.scenarios()]


def test_the_document_is_as_the_test_run_writes_it():
    assert DOCUMENT.read_text() == compatibility.render(ROWS)


def test_what_is_committed_works():
    assert [name for name, row in ROWS.items() if row.outcome != WORKS] == []


@pytest.mark.parametrize("host", ["java", "go", "node"])
def test_each_program_holds_the_lives_of_the_table_and_no_other(host):
    sources = sorted((PROGRAMS / host).glob("*.*"))
    text = "".join(path.read_text() for path in sources if path.suffix in (".java", ".go", ".js"))
    prefixes = {name.partition("/")[0] for name in (s.name for s in compatibility.of_host(host))}
    named = re.findall(r"""["']([a-z0-9.-]+)/([a-z0-9-]+)["']\s*[:,]""", text)
    held = {f"{prefix}/{rest}" for prefix, rest in named if prefix in prefixes}
    assert held == {scenario.name for scenario in compatibility.of_host(host)}


def test_the_rows_are_of_the_pinned_versions():
    assert [
        name for name, row in ROWS.items() if not compatibility.is_pinned(name, row.version)
    ] == []


def test_a_run_on_other_versions_leaves_no_trace(monkeypatch):
    """``make test-oldest`` once put its versions into the table, from the same pytest cache."""
    monkeypatch.setattr(compatibility_run, "_outcomes", {})
    for version in (ROWS[ALONE].version, "0.10.0"):
        compatibility_run.pytest_runtest_logreport(a_report(ALONE, version))
    assert compatibility_run._outcomes == {ALONE: Outcome(ROWS[ALONE].version, WORKS)}


def a_report(scenario: str, version: str) -> pytest.TestReport:
    """What a scenario's passed test tells."""
    told = [("scenario", scenario), ("version", version)]
    return pytest.TestReport(
        "a test", ("a file", 1, "a test"), {}, "passed", None, "call", user_properties=told
    )


def test_no_lock_of_another_language_names_an_address():
    locks = (
        "java/pom.xml",
        "go/go.mod",
        "go/go.sum",
        "node/package.json",
        "node/package-lock.json",
    )
    for lock in locks:
        text = (PROGRAMS / lock).read_text().replace("http://maven.apache.org/POM", "")
        assert "://" not in text, lock
