"""How a command that runs Spark ends when it is told to: Ctrl-C, and SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

STDERR: Final = 2

STOPPED: Final = "groupkeeper: stopped; run it again to go on\n"

JAVA_ENDS_S: Final = 10.0
"""How long Spark may take to end its queries."""


@contextmanager
def stoppable() -> Iterator[None]:
    """While it lasts, SIGINT and SIGTERM end the process with one line, and 130 or 143.

    Spark's JVM goes first, and its queries with it: a call of Python's that waits for it cannot be
    broken off, nor another be made meanwhile. The jobs stand that, as they stand a crash.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told: list[int] = []
    stderr = os.dup(STDERR)

    def stop(number: int, _: Any) -> None:
        ignore()
        told.append(number)
        # threads of Spark's and py4j's tell at length that the JVM is gone
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
        if told:
            # at once: what Python does at its end would speak to a JVM that is gone
            os.write(stderr, STOPPED.encode())
            os._exit(128 + told[0])
        os.close(stderr)
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def signals_kept() -> Iterator[None]:
    """Leave the handlers as they are, whatever is called: Spark puts its own in their place."""
    before = {each: signal.getsignal(each) for each in SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for each, handler in before.items():
                signal.signal(each, handler)


def _end_java() -> None:
    """End the JVM that this process started, if it did: it ends when its standard input does."""
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
