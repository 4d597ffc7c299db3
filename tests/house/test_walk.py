"""The walk of docs/architecture.md is the one that requests take."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
MOST_OF_A_STORY = 7


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


WALK = section("The walk of two requests")


@pytest.fixture(scope="module")
def walked() -> dict[str, dict[str, list[str]]]:
    """By API: the files in their order, each with the functions that ran in it."""
    done = subprocess.run(
        [sys.executable, "-P", str(ROOT / "bench/walk.py")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, list[str]]] = {}
    for line in done.stdout.splitlines():
        name, _, functions = line.strip().partition(" ")
        if not line.startswith(" "):
            files = found[name.removesuffix(":")] = {}
        else:
            files[name] = functions.strip().split(", ")
    return found


@pytest.mark.parametrize("api", ["JoinGroup", "OffsetCommit"])
def test_the_story_is_told_in_the_order_in_which_it_happens(
    api: str, walked: dict[str, dict[str, list[str]]]
) -> None:
    told = re.search(rf"^{api}.*:\n\n((?:(?:\d\. |   ).*\n)+)", WALK, re.MULTILINE)
    assert told is not None
    story: dict[str, list[str]] = {}
    for line in told[1].replace("\n   ", " ").splitlines():
        file, *functions = re.findall(r"`([^`]+)`", line)
        story[file] = functions
    assert len(story) <= MOST_OF_A_STORY
    files = walked[api]
    assert list(story) == [file for file in files if file in story]
    for file, functions in story.items():
        assert set(functions) <= set(files[file]), file


@pytest.mark.parametrize("api", ["JoinGroup", "OffsetCommit"])
def test_no_request_passes_more_files_than_the_page_says(
    api: str, walked: dict[str, dict[str, list[str]]]
) -> None:
    row = re.search(rf"^\| {api} \| (\d+) \|", WALK, re.MULTILINE)
    assert row is not None
    assert len(walked[api]) <= int(row[1]), list(walked[api])
