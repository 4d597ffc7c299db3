"""Who interrupts a soak leaves nothing running: the inner process has the time to clear up."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
INNER = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("runs", flush=True)
    signal.pause()
except KeyboardInterrupt:
    print("clears up", flush=True)
    input()
    raise SystemExit(7)
"""
OUTER = """
import os, sys
from tests.soak.__main__ import run_and_forward
sys.exit(run_and_forward([sys.executable, "-c", sys.argv[1]], os.environ))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_outer_process_forwards_a_signal_and_waits_for_the_end_of_the_inner_one(
    number: int,
) -> None:
    outer = subprocess.Popen(
        [sys.executable, "-c", OUTER, INNER],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert outer.stdout is not None
    assert outer.stdout.readline() == "runs\n"
    outer.send_signal(number)
    assert outer.stdout.readline() == "clears up\n"
    outer.send_signal(number)  # a second one does not interrupt that
    assert outer.communicate("\n")[0] == ""
    assert outer.returncode == 7
