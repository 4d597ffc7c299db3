"""The examples of docs/use that are marked to be run, as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.helpers.printed.printed_docs import ROOT

pytestmark = pytest.mark.conformance


def _examples(page: str) -> list[str]:
    text = (ROOT / "docs" / "use" / page).read_text()
    return re.findall(r"<!-- run -->\n```python\n(.*?)```", text, re.DOTALL)


EXAMPLES = _examples("faults.md")
CONSUMER_GROUPS = _examples("testing.md")
SETTINGS = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"


def test_there_is_an_example_of_every_fault_on_both_servers() -> None:
    assert len(EXAMPLES) == 2
    for text in EXAMPLES:
        assert [
            f for f in ("advance", "evict", "fail_storage", "delay") if f"{f}(" not in text
        ] == []


@pytest.mark.parametrize(
    "text", EXAMPLES + CONSUMER_GROUPS, ids=["confluent-kafka", "aiokafka", "consumer-group"]
)
def test_an_example_passes_as_it_stands(tmp_path, text) -> None:
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "test_example.py").write_text(text)
    (tmp_path / "conftest.py").write_text(
        "from groupkeeper.coordinator.testkit import pytest_plugin\n\n\n"
        "def pytest_configure(config):\n"
        "    if not config.pluginmanager.hasplugin('groupkeeper'):\n"
        "        config.pluginmanager.register(pytest_plugin, 'groupkeeper')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(re.findall(r'def test_', text))} passed" in done.stdout
