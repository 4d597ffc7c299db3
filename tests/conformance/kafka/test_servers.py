"""The servers of a comparison end with their run (part of `make test`)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.kafka.servers import stopped_in_the_end
from tests.helpers.printed_docs import ROOT


@dataclass
class Pair:
    """A pair of servers as far as its end goes."""

    is_running: bool = True

    def stop(self) -> None:
        self.is_running = False


def both() -> tuple[Pair, list[Future[Any]]]:
    """A pair that runs, and the start of it; and the start of one that failed."""
    pair, started, failed = Pair(), Future[Any](), Future[Any]()
    started.set_result(pair)
    failed.set_exception(OSError("no port left"))
    return pair, [failed, started]


def test_servers_stop_when_the_run_ends() -> None:
    before = signal.getsignal(signal.SIGTERM)
    pair, starting = both()
    with stopped_in_the_end(starting):
        assert pair.is_running
    assert not pair.is_running
    assert signal.getsignal(signal.SIGTERM) is before


def test_servers_stop_when_the_run_fails() -> None:
    pair, starting = both()
    with pytest.raises(ZeroDivisionError), stopped_in_the_end(starting):
        raise ZeroDivisionError
    assert not pair.is_running


def test_servers_stop_before_anything_else_when_the_run_is_told_to_end() -> None:
    pair, starting = both()
    with stopped_in_the_end(starting):
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert not pair.is_running


@pytest.mark.slow
def test_a_machine_that_lacks_something_has_compared_nothing_and_says_so(tmp_path: Path) -> None:
    """Or `make differential` would be green without Java."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "differential", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "tests/conformance/kafka/test_cases.py"],
        cwd=ROOT,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("differential: nothing was compared: no java here: install ")
