"""What ``make fuzz`` refuses, and that who ends it leaves nothing running."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fuzz.__main__ import ROOT, main

NONSENSE = [
    ("MINUTES", "-1"),
    ("MINUTES", "0"),
    ("MINUTES", "abc"),
    ("MINUTES", "nan"),
    ("MINUTES", "inf"),
    ("SEED", "x"),
    ("SEED", "0"),
    ("KEEP", "yes"),
    ("ONLY", "writers"),
]


@pytest.mark.parametrize(("name", "text"), NONSENSE)
def test_nonsense_is_refused(monkeypatch, capsys, name, text):
    """Or a run that did nothing would say that nothing was found."""
    monkeypatch.setenv(name, text)
    assert main() == 2
    assert capsys.readouterr().out.startswith(f"fuzz: {name}={text} is refused: give ")


def has_begun(pid: str) -> bool:
    """Whether it is a daemon with sockets: then who started it has come back from ``Popen``, and
    knows whom to end.
    """
    for each in Path("/proc", pid, "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the process has closed this file since
            if os.readlink(each).startswith("socket:"):
                return True
    return False


def test_who_ends_it_ends_its_daemon():
    fuzz = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz"],
        cwd=ROOT,
        env={**os.environ, "ONLY": "daemon", "MINUTES": "10"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    children = Path(f"/proc/{fuzz.pid}/task/{fuzz.pid}/children")
    while not (started := children.read_text().split()) or not has_begun(started[0]):
        assert fuzz.poll() is None, fuzz.communicate()
        time.sleep(0.01)
    fuzz.send_signal(signal.SIGTERM)
    assert fuzz.communicate()[0].splitlines()[-1] == "fuzz: ended before it was done"
    assert fuzz.returncode == 130
    assert not Path("/proc", started[0]).exists()
