"""A comparison ends with its servers, and is not begun where nothing can be compared (part of
`make test`).
"""

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

from tests.conformance.kafka.asked import Asked, asked
from tests.conformance.kafka.servers import stopped_in_the_end
from tests.helpers.printed.printed_docs import ROOT


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


def last_line_of_a_run(home: Path, test: str, **asked: str) -> str:
    """The last line of a `make differential` that compares nothing, and is no success."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "differential", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"tests/conformance/kafka/{test}"],
        cwd=ROOT,
        env={"PATH": str(home), "HOME": str(home), **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_machine_that_lacks_something_has_compared_nothing_and_says_so(tmp_path: Path) -> None:
    """Or `make differential` would be green without Java."""
    last = last_line_of_a_run(tmp_path, "test_cases.py")
    assert last.startswith("differential: nothing was compared: no java here: install ")


@pytest.mark.slow
@pytest.mark.parametrize("test", ["test_cases.py", "test_generated.py"])
def test_nonsense_is_refused_before_any_server_is_started(tmp_path: Path, test: str) -> None:
    last = last_line_of_a_run(tmp_path, test, CASES="many")
    refused = "CASES=many is refused: give a whole number from 1 on"
    assert last == f"differential: nothing was compared: {refused}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CASES", "0"),
        ("CASES", "-3"),
        ("CASES", "1e3"),
        ("CASES", ""),
        ("SEED", "x"),
        ("SEED", "-1"),
        ("ALL_VERSIONS", "yes"),
        ("ALL_VERSIONS", ""),
    ],
)
def test_what_makes_no_sense_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(name, text)
    assert asked().refusal.startswith(f"{name}={text} is refused: give ")


def test_what_makes_sense_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CASES", "SEED", "ALL_VERSIONS"):
        monkeypatch.delenv(name, raising=False)
    assert asked() == Asked(cases=100, seed=1, all_versions=False)
    monkeypatch.setenv("CASES", "2000")
    monkeypatch.setenv("SEED", "0")
    monkeypatch.setenv("ALL_VERSIONS", "1")
    assert asked() == Asked(cases=2_000, seed=0, all_versions=True)
    monkeypatch.setenv("ALL_VERSIONS", "0")
    assert not asked().all_versions
