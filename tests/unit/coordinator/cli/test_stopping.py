"""What a person sees who ends a command that runs Spark; no Spark."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WAITS = """
import os, signal
from groupkeeper.coordinator.cli.stopping import signals_kept, stoppable

with stoppable():
    with signals_kept():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark puts its own handler there
    try:
        os.kill(os.getpid(), {number})
        signal.pause()
    finally:
        os.write(2, b"what threads say whose JVM is gone")
        raise RuntimeError("what the way out runs into, where Java is gone")
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_told_to_end_says_one_line(number: signal.Signals, code: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", WAITS.format(number=int(number))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (
        code,
        "groupkeeper: stopped; run it again to continue\n",
    )


def test_afterwards_the_signals_do_what_they_did() -> None:
    from groupkeeper.coordinator.cli.stopping import SIGNALS, stoppable

    before = [signal.getsignal(each) for each in SIGNALS]
    with stoppable():
        assert [signal.getsignal(each) for each in SIGNALS] != before
    assert [signal.getsignal(each) for each in SIGNALS] == before
