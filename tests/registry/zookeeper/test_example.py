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


def run(*arguments: str) -> str:
    """What a command prints that ends well and complains of nothing."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def test_the_example_runs_as_often_as_one_likes_and_then_the_commands_show_its_group(servers):
    for _ in range(2):
        lines = run("examples/registry.py", servers).splitlines()
        assert [line for line in TOLD if line not in lines] == []
    asked = "-m", "groupkeeper", "zookeeper"
    assert run(*asked, "groups", "-z", servers).splitlines()[1].split() == ["billing", "0"]
    offsets = run(*asked, "offsets", "billing", "-z", servers).splitlines()[1:]
    assert [line.split() for line in offsets] == [
        ["orders", str(n), str(200 + n)] for n in range(6)
    ]
