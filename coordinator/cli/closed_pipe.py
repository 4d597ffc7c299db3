"""What a command does when what it prints goes nowhere: nobody reads on (``| head -1``), or the
disk is full.
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
"""What a shell says of a tool that SIGPIPE ended."""


def end_when_nobody_reads() -> None:
    """From now on, a write to a closed standard output ends the process, without a word; one that
    fails in another way ends it with one.

    Not by the signal's own default, which would end a command whose broker closes a connection as
    well; and not by BrokenPipeError, which is an OSError: every command that reads files would
    have to tell the one from the other.
    """
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return  # closed from the beginning, or a test's
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
            with suppress(OSError):  # it may be as full
                sys.stderr.write(f"groupkeeper: standard output: {error.strerror}\n")
        # What Python still holds, it writes out at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        raise SystemExit(code)
