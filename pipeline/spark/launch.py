"""Starts Spark's JVM, and reports a failed start in one line.

If the start fails, Spark itself prints a Java stack trace and raises a Python exception, and
neither says what to do.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from pyspark import SparkContext
from pyspark.errors import PySparkException

from groupkeeper.pipeline.spark.failure import why_not_started

Started = TypeVar("Started")

STDERR: Final = 2


class SparkNotStarted(Exception):
    """Spark's JVM could not be started; the message is one line."""


def start(make: Callable[[], Started], *, passes_on: bool) -> Started:
    """Call ``make``, which starts Spark's JVM. Raises SparkNotStarted if the JVM ended at once.

    The output of the JVM until ``make`` returns is dropped or, with ``passes_on``, written to
    standard error. Later output is always written to standard error.
    """
    if SparkContext._gateway is not None:
        return make()
    said = _Said()
    try:
        with said.in_place_of_stderr():
            made = make()
    except PySparkException as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise SparkNotStarted(why_not_started(said.all())) from None
    said.pass_on(with_first=passes_on)
    return made


class _Said:
    """A pipe for the standard error of new processes. Their output is kept until ``pass_on`` is
    called, and written to standard error from then on.
    """

    def __init__(self) -> None:
        read, self._write = os.pipe()
        os.set_blocking(read, False)
        self._pipe = open(read, "rb", buffering=0)  # noqa: SIM115 - closed at its end
        self._kept: list[bytes] = []
        self._passes_on = False
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._follow, name="spark-stderr", daemon=True)
        self._reader.start()

    @contextmanager
    def in_place_of_stderr(self) -> Iterator[None]:
        """Make the pipe the standard error of all processes that start inside the block, until they
        end.
        """
        sys.stderr.flush()
        before = os.dup(STDERR)
        os.dup2(self._write, STDERR)
        os.close(self._write)
        try:
            yield
        finally:
            os.dup2(before, STDERR)
            os.close(before)

    def all(self) -> str:
        """Wait until all processes that write to the pipe have ended, and return their output."""
        self._reader.join()
        return b"".join(self._kept).decode(errors="replace")

    def pass_on(self, *, with_first: bool) -> None:
        """Write later output to standard error. If ``with_first`` is True, write the kept output
        too.
        """
        with self._lock:
            if not self._pipe.closed:
                self._take()  # reads what was written before this moment
            self._passes_on = True
            if with_first:
                os.write(STDERR, b"".join(self._kept))
            self._kept.clear()

    def _follow(self) -> None:
        poll = select.poll()
        poll.register(self._pipe)
        while not self._pipe.closed:
            poll.poll()
            with self._lock:
                if not self._take():
                    self._pipe.close()

    def _take(self) -> bool:
        """Read the output that is there now. Return False if all writers have ended. The caller
        must hold the lock.
        """
        while text := self._pipe.read(65_536):
            if self._passes_on:
                os.write(STDERR, text)
            else:
                self._kept.append(text)
        return text is None
