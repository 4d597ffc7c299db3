"""`make demo` as a stranger runs it: it ends by itself, and what it tells is true."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys

import pytest

from examples.demo import Screen
from tests.helpers.printed.printed_docs import ROOT

pytestmark = pytest.mark.slow

GIVE_UP_S = 240
"""On a machine that is busy with other tests; alone it takes half a minute."""


def test_the_story_comes_to_its_end_with_every_fact_true(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py", str(GIVE_UP_S)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=GIVE_UP_S + 60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    told = done.stdout
    assert "\033" not in told, "colours are for terminals"
    assert told.count("✓") == 5
    assert "✗" not in told
    facts = told.partition("What you saw")[2]
    for fact in ("each exactly once", "after the kill", "there after it", "without a rebalance"):
        assert fact in facts
    # the pictures: three owners, two, and the same two after the daemon came back
    strips = [
        line.split() for line in told.splitlines() if re.match(r" +(ann|bob|cat)  [■·]", line)
    ]
    assert [line[0] for line in strips] == ["ann", "bob", "cat", "ann", "cat", "ann", "cat"]
    assert strips[3:5] == strips[5:7]
    for picture in (strips[:3], strips[3:5]):
        columns = list(zip(*(line[1:] for line in picture), strict=True))
        assert len(columns) == 12
        assert all(column.count("■") == 1 for column in columns)
    resumed = re.findall(r"bob had committed (\d+), \w+ goes on at (\d+)", told)
    assert len(resumed) == 4
    assert all(int(at) >= int(before) for before, at in resumed)
    assert "offsets acknowledged before the kill: 12, kept: 12" in told
    assert "STATE        Stable" in told
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


class Terminal(io.TextIOWrapper):
    """Takes what is printed, and says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("term", "no_color", "coloured"),
    [("xterm", "", True), ("xterm", "1", False), ("dumb", "", False)],
)
def test_colours_are_used_where_the_terminal_has_them(monkeypatch, term, no_color, coloured):
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys, "stdout", Terminal(io.BytesIO(), "utf-8"))
    assert (Screen().name("ann") != "ann") is coloured


def test_a_terminal_without_these_characters_gets_plain_ones(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal(io.BytesIO(), "ascii"))
    screen = Screen()
    assert (screen.full, screen.empty, screen.yes) == ("#", ".", "ok")
