"""For all tests: a skip fails where everything is required, and our own pytest plugin."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

import groupkeeper.coordinator.testkit.pytest_plugin
from tests.helpers.clients import compatibility_run
from tests.helpers.core import examples


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure under REQUIRE_ALL=1, which `make ci` sets."""
    report = yield
    if report.skipped and os.environ.get("REQUIRE_ALL") == "1":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and REQUIRE_ALL=1: {report.longrepr}"
    return report


@pytest.fixture(scope="session", autouse=True)
def _one_import_name() -> Generator[None]:
    """Fail if a module of ours was ever loaded by the name of its folder alone: it would be there
    twice, with two of each class.
    """
    yield
    folders = {"clients", "coordinator", "protocol", "storage", "pipeline"}
    assert sorted(name for name in sys.modules if name.partition(".")[0] in folders) == []


def pytest_configure(config: pytest.Config) -> None:
    """Bring the fixture ``groupkeeper`` where the project is not installed, only checked out, and
    what writes the table of compatibility; test nothing but what the sources say.
    """
    examples.load_profile()
    # the tests of Spark share its JVM, and none writes into the home of who runs them
    os.environ["GROUPKEEPER_JVM_CACHE"] = "off"
    compiled = Path(groupkeeper.coordinator.__file__).parent.rglob("*.so")
    if "TESTS_OF_COMPILED" not in os.environ and any(compiled):
        pytest.exit("compiled modules lie in this tree and hide their sources: make clean", 4)
    config.pluginmanager.register(compatibility_run, "compatibility-run")
    if not config.pluginmanager.hasplugin("groupkeeper"):
        config.pluginmanager.register(groupkeeper.coordinator.testkit.pytest_plugin, "groupkeeper")
