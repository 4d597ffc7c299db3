"""Ends a command on Ctrl-C or SIGTERM, with exit code 130 or 143."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import typer

from groupkeeper.coordinator.cli.failing import FAILED

Result = TypeVar("Result")

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

STDERR: Final = 2

STOPPED: Final = "groupkeeper: stopped; run it again to continue\n"

JAVA_ENDS_S: Final = 10.0
"""How long to wait for the end of Spark's JVM before it is killed."""


def run_stoppable(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run the work in a new event loop and return its result. SIGINT and SIGTERM cancel the work.
    Then the command exits with code 130 or 143."""
    received: list[int] = []

    async def run() -> Result:
        task = asyncio.create_task(work())

        def stop(number: int) -> None:
            received.append(number)
            task.cancel()

        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        return await task

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise typer.Exit(128 + received[0] if received else FAILED) from None


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside the block, SIGINT and SIGTERM end the process with one line, and code 130 or 143.

    This is for commands that may use Spark. A Python call that waits for Spark's JVM cannot be
    interrupted, so the JVM is ended first. For a job this is like a crash, after which the next run
    continues.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    stderr = os.dup(STDERR)

    def stop(number: int, _: Any) -> None:
        ignore()
        received.append(number)
        # threads of Spark and py4j would print long errors about the ended JVM
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDERR)
        _end_java()
        raise KeyboardInterrupt

    def ignore() -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)

    before = {each: signal.signal(each, stop) for each in SIGNALS}
    try:
        yield
    finally:
        if received:
            # exit at once: Python's exit handlers would call the ended JVM
            os.write(stderr, STOPPED.encode())
            os._exit(128 + received[0])
        os.close(stderr)
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def signals_kept() -> Iterator[None]:
    """Restore the handlers of SIGNALS after the block, because the start of Spark replaces them."""
    before = {each: signal.getsignal(each) for each in SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for each, handler in before.items():
                signal.signal(each, handler)


def _end_java() -> None:
    """End Spark's JVM, if this process started it. The JVM ends when its standard input is closed;
    after JAVA_ENDS_S it is killed.
    """
    pyspark = sys.modules.get("pyspark")
    gateway = None if pyspark is None else pyspark.SparkContext._gateway
    java = getattr(gateway, "proc", None)
    if java is None:
        return
    java.stdin.close()
    try:
        java.wait(JAVA_ENDS_S)
    except subprocess.TimeoutExpired:
        java.kill()
