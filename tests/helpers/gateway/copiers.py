"""Programs that copy a topic exactly once. Tests start, stop and kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.helpers.clients.ecosystem import (
    JAVA_FLAGS,
    JDK,
    go_program,
    jars_of,
    need,
    once,
    run,
)

JAVA_PROTOCOLS = {"java": ["classic"], "java-consumer": ["consumer"]}
"""The clients in Java, and the protocol of their groups."""

PROGRAMS = Path(__file__).parents[2] / "gateway" / "programs"


def java_program(main: str) -> list[str]:
    machine, compiler = need("java", JDK), need("javac", JDK)
    jars = jars_of("copiers-jars", PROGRAMS / "java" / "pom.xml")
    sources = sorted((PROGRAMS / "java").glob("*.java"))

    def compile_all(place: Path) -> None:
        run([compiler, "-cp", f"{jars}/*", "-d", str(place), *map(str, sources)])

    classes = once("copiers", sources, compile_all)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [machine, *JAVA_FLAGS, quiet, "-cp", f"{classes}:{jars}/*", main]


def program(kind: str) -> list[str]:
    """Return the command of a copier, without its arguments."""
    if kind in JAVA_PROTOCOLS:
        return java_program("Copier")
    if kind == "streams":
        return java_program("StreamsCopier")
    if kind == "franz-go":
        return [*gateway_go(), "copy"]
    return [sys.executable, str(PROGRAMS / f"{kind}_copier.py")]


def gateway_go() -> list[str]:
    """Return the Go programs of the gateway's tests."""
    return go_program("gateway-go", PROGRAMS / "go")


class Program:
    """A process that works until it is killed. It can be started again."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command = command
        self.log = log
        self.lines: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> Self:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._process = process
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()
        return self

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):  # a kill may cut the last one
                self.lines.append(line.strip())

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Kill the process with SIGKILL, and wait for its end."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._reader is not None
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def complaint(self) -> str:
        """Return the last lines that it printed, for the message of a failed test."""
        errors = self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""
        return "\n".join([*self.lines[-20:], errors])


class Copier(Program):
    """A process that copies until it is killed."""

    def __init__(self, kind: str, arguments: list[str], log: Path) -> None:
        super().__init__([*program(kind), *arguments, *JAVA_PROTOCOLS.get(kind, ())], log)

    def said(self, word: str) -> int:
        """Return how many of its printed lines begin with this word."""
        return sum(line.startswith(word) for line in list(self.lines))

    def wait_open(self, limit_s: float, is_done: Callable[[], bool]) -> bool:
        """Wait until the copier reports an open transaction. Return False if ``is_done`` becomes
        True before that.
        """
        before = self.said("open")
        self.wait(lambda: self.said("open") > before or is_done(), limit_s)
        return self.said("open") > before

    def wait(self, done: Callable[[], bool], limit_s: float) -> None:
        """Wait until ``done`` is True. If the copier ends because it was fenced, start it again."""
        end = time.monotonic() + limit_s
        while not done():
            assert time.monotonic() < end, f"not done in {limit_s} s: {self.complaint()}"
            if not self.is_running:
                self.kill()
                self.start()
            time.sleep(0.1)
