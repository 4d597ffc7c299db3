"""Ends a command whose output cannot be written: the reader has ended (``| head -1``), or the disk
is full.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from groupkeeper.coordinator.cli.failing import FAILED

if TYPE_CHECKING:
    from typing_extensions import Buffer

CLOSED_PIPE: Final = 128 + signal.SIGPIPE
"""The exit code that a shell reports for a tool that SIGPIPE ended."""


def end_when_nobody_reads() -> None:
    """Replace ``sys.stdout`` by one that ends the process if a write fails.

    If the reader of standard output has ended, the process ends silently with CLOSED_PIPE. If a
    write fails for another reason, the process prints one line and exits with FAILED.

    Two simpler ways do not work. The default action of SIGPIPE would also end a command whose
    broker closes a connection. A BrokenPipeError is an OSError, so a command that reads files could
    mistake it for a failed read.
    """
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return  # closed from the beginning, or replaced by a test
    was = sys.stdout
    was.flush()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output(was.fileno(), "wb", closefd=False)),
        encoding=was.encoding,
        errors=was.errors,
        line_buffering=was.line_buffering,
        write_through=was.write_through,
    )


class _Output(io.FileIO):
    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            code = CLOSED_PIPE
        except OSError as error:
            code = FAILED
            with suppress(OSError):  # standard error may be on the same full disk
                sys.stderr.write(f"groupkeeper: standard output: {error.strerror}\n")
        # Python flushes its buffers at exit. This cannot fail again if the output is the null
        # device.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        raise SystemExit(code)
