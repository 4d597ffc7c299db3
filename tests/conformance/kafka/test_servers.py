"""The servers of a comparison end with their run (part of `make test`)."""

from __future__ import annotations

import os
import signal
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance.kafka.servers import stopped_in_the_end


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
