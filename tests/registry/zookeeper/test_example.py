"""``examples/registry.py`` runs as it is, in a process of its own, and tells what it is to tell."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.helpers.printed.printed_docs import ROOT

pytestmark = pytest.mark.registry

TOLD = [
    "a reads orders-5 from 0",
    "owners: {0: 'a', 1: 'a', 2: 'a', 3: 'a', 4: 'a', 5: 'a'}",
    "b reads orders-5 from 105",
    "owners: {0: 'a', 1: 'b', 2: 'a', 3: 'b', 4: 'a', 5: 'b'}",
    "a has left",
    "b reads orders-0 from 200",
    "owners: {0: 'b', 1: 'b', 2: 'b', 3: 'b', 4: 'b', 5: 'b'}",
    "b has left",
    "committed: {0: 200, 1: 201, 2: 202, 3: 203, 4: 204, 5: 205}",
]


@pytest.mark.parametrize("time", ["first", "second"])
def test_the_example_runs_and_tells_what_it_is_to_tell(servers, time):
    done = subprocess.run(
        [sys.executable, "-W", "error", "examples/registry.py", servers],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in TOLD if line not in lines] == [], done.stdout
