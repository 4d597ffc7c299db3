"""The clients of ``examples/clients`` in Python, run as a newcomer runs them.

Those in Java, Go and JavaScript were run by hand; the documents show them as they stand there.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers.printed_docs import ROOT

pytestmark = [pytest.mark.conformance, pytest.mark.groupkeeper(topics={"orders": 12})]

FOLDER = ROOT / "examples" / "clients"
CLIENTS = sorted(path.name for path in FOLDER.glob("*.py"))


def test_there_is_a_client_for_each_python_library():
    assert len(CLIENTS) == 3


@pytest.mark.parametrize("name", CLIENTS)
def test_it_joins_commits_and_reads_back_what_it_committed(groupkeeper, name):
    done = subprocess.run(
        [sys.executable, FOLDER / name, groupkeeper.bootstrap],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "orders 0: 42\n"), done.stderr
    assert groupkeeper.committed("billing") == {("orders", 0): 42}
