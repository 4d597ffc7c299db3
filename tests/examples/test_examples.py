"""The examples run as they are, each in a process of its own, and tell what they are to tell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.printed.printed_docs import ROOT

EXAMPLES = ROOT / "examples"

TOLD = {
    "embed.py": ["assigned: {'orders': [0, 1, 2]}", "committed: 42"],
    "embed_consumer_group.py": [
        "assigned: {'orders': [0, 1, 2]}",
        "later: None",
        "committed: 42",
    ],
    "broker_clients.py": ["40 messages, each read once: True"],
    "own_store.py": [
        "first life begins with {}",
        "second life begins with {'orders': {0: 42}}",
    ],
    "offsets.py": [
        "now at {'orders': {0: 1000, 1: 990}}",
        "refused: OFFSET_OUT_OF_RANGE - offset 5000 is not within 0 and 1200",
        "after the reset {}",
    ],
    "audit.py": [" 300 ->    3  by somebody's script", "put back to {'orders': {0: 300}}"],
    "custom_assignor.py": [
        "installed: one-takes-all, range, roundrobin, sticky",
        "assigned: [[0, 1, 2]]",
    ],
}


def run(example: str, *paths: Path) -> str:
    """Run one where nothing but the project (and ``paths``) can be imported from the folder."""
    path = os.pathsep.join(map(str, [ROOT, *paths]))
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / example],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def check(example: str, output: str) -> None:
    lines = output.splitlines()
    assert [line for line in TOLD[example] if line not in lines] == [], output


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted(set(TOLD) - {"custom_assignor.py"}))
def test_an_example_runs_and_tells_what_it_is_to_tell(example: str) -> None:
    check(example, run(example))


@pytest.mark.slow
def test_the_assignor_of_another_distribution_is_found_when_it_is_installed(
    tmp_path: Path,
) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    where = ["--no-deps", "--no-build-isolation", "--target", tmp_path]
    subprocess.run([*pip, *where, EXAMPLES / "assignor"], check=True, timeout=120)
    check("custom_assignor.py", run("custom_assignor.py", tmp_path))


def test_every_example_that_embeds_us_is_run() -> None:
    embedding = {
        path.name for path in EXAMPLES.glob("*.py") if "GroupCoordinator(" in path.read_text()
    }
    assert embedding == {*TOLD, "broker.py"} - {"broker_clients.py"}, (
        "the broker is run by its clients"
    )
