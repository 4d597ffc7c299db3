"""Sealing in a separate process, one for each daemon.

The process does not compete with the event loop for the interpreter lock. Measured: sealing added
13 to 16 us to each commit with a thread, and 5 us with a process.

    python -m groupkeeper.storage.seal

The process reads orders from stdin and writes answers to stdout, one on each line.

It ends when stdin ends, so it does not outlive its daemon, even if the daemon is killed. It holds a
lock that the next sealing process waits for. It ignores the signals that end a daemon. It may be
killed at any time: the next process repairs unfinished work
(``storage.event_log.sealing.settling``).
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Final, Literal, TypeAlias

import msgspec

from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.event_log.log_clock import wall_clock_ms
from groupkeeper.storage.event_log.sealing.sealer import Found, Pacer, Progress, SealSettings
from groupkeeper.storage.event_log.segments import Hook, Segment, no_hook
from groupkeeper.storage.event_log.source import Address, OpenRows
from groupkeeper.storage.file_lock import FileLock
from groupkeeper.storage.python_child import child_environment, ignore_stop_signals

COMMAND = (sys.executable, "-m", "groupkeeper.storage.seal")

NICENESS: Final = 5
"""The increment of the process's nice value. If there are not enough cores, the daemon runs first.
"""

END_S: Final = 0.5
"""How long the process may work after the end of its stdin. It then exits in any case."""
KILLED_S: Final = 5.0
"""How long to wait for the end of a killed process. It ends at once, or in a second on a busy
machine. If the kernel holds it, for example at a disk that hangs, it ends later.
"""
LOCK_S: Final = 1.0
"""How long to wait for the lock of an earlier process, which first has to notice that its daemon
has ended. If that process hangs, the call fails and the daemon retries it.
"""
ANSWER_S: Final = {"settle": 60.0, "step": 60.0, "finish": 60.0, "retain": 3600.0}
"""Maps the name of a call to the seconds to wait for its answer. Then the process is killed. A step
works for 0.1 s and may have to sync a file. Retention reads a whole day."""
_LOCK_POLL_S: Final = 0.02


class SealingFailed(Exception):
    """A call failed in the process, or the process ended. The message says why."""


def reason_of(error: Exception) -> str:
    """Return the reason why sealing failed. If a permission is missing, the text names the
    setting.
    """
    if isinstance(error, PermissionError):
        return f"log.dir: {error.filename}: {error.strerror}; let this user write there"
    return str(error) or repr(error)


class _Task(msgspec.Struct):
    """The first line on stdin: the store and the settings."""

    address: Address
    settings: SealSettings


class _Order(msgspec.Struct, omit_defaults=True):
    """A call of a method of ``storage.event_log.sealing.sealer.Sealing``, as a line on stdin."""

    call: Literal["settle", "step", "retain", "finish"]
    limit_s: float = 0.0


class _Answer(msgspec.Struct, omit_defaults=True):
    """The result of an order, as a line on stdout."""

    progress: Progress
    found: Found | None = None
    damaged: Sequence[Segment] = ()
    is_behind: bool = False
    error: str = ""


_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


def _counted_on(progress: Progress, before: Progress) -> Progress:
    """Return the progress of a process, with the counts of earlier processes added. A new process
    counts from 0, but a counter of the metrics must never fall.
    """
    return msgspec.structs.replace(
        progress,
        segments_sealed=before.segments_sealed + progress.segments_sealed,
        segments_damaged=before.segments_damaged + progress.segments_damaged,
        cpu_s=before.cpu_s + progress.cpu_s,
    )


class SealingProcess:
    """The part of sealing that runs in the daemon. ``settle`` starts the process, and each call
    sends an order to it.
    """

    def __init__(
        self, address: Address, settings: SealSettings, command: Sequence[str] | None = None
    ) -> None:
        """Create the object without starting a process. ``command`` runs ``main``; tests replace
        it.
        """
        self.progress = Progress()
        self._before = self.progress
        """The progress when the present process was started. Its own counts are added to this."""
        self._task = _Task(address, settings)
        self._command = command or COMMAND
        self._process: subprocess.Popen[bytes] | None = None

    def settle(self) -> Found:
        """Start the process if none is running, and find out which events are sealed."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        found = self._call(_Order("settle")).found
        assert found is not None
        return found

    def step(self) -> bool:
        return self._call(_Order("step")).is_behind

    def retain(self) -> Sequence[Segment]:
        return self._call(_Order("retain")).damaged

    def finish(self, limit_s: float) -> None:
        self._call(_Order("finish", limit_s))

    def close(self) -> None:
        """End the process. Kill it if it does not end in time."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(2 * END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(KILLED_S)
        process.stdout.close()

    def abandon(self) -> None:
        """Kill the process. A running call fails."""
        if self._process is not None:
            self._process.kill()

    def _start(self) -> None:
        self.close()
        self._before = self.progress
        self._process = subprocess.Popen(  # noqa: S603 - no part of the command is from outside
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
        )
        self._send(self._task)

    def _call(self, order: _Order) -> _Answer:
        self._send(order)
        assert self._process is not None
        assert self._process.stdout is not None
        limit_s = ANSWER_S[order.call]
        if not select.select([self._process.stdout], [], [], limit_s)[0]:
            self._process.kill()
            raise SealingFailed(f"{self._end()}: it had not answered for {limit_s:.0f} s")
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise SealingFailed(self._end())
        answer = _decode_answer(line)
        self.progress = _counted_on(answer.progress, self._before)
        if answer.error:
            raise SealingFailed(answer.error)
        return answer

    def _send(self, message: _Task | _Order) -> None:
        if self._process is None:
            raise SealingFailed("the process that seals is not running")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(_encode(message) + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise SealingFailed(self._end()) from error

    def _end(self) -> str:
        process = self._process
        assert process is not None
        self.close()
        return f"the process that seals (pid {process.pid}) ended with {process.returncode}"


# --- the process ----------------------------------------------------------------------------------


RowsOf: TypeAlias = Callable[[str], OpenRows]
"""Returns a function that opens the rows of the store at a URL: ``storage.open.rows_of``."""


def serve(
    rows_of: RowsOf, orders: Iterator[bytes], answers: IO[bytes], hook: Hook = no_hook
) -> None:
    """Execute orders until stdin ends. ``hook`` is called between the steps, for tests."""
    task = msgspec.json.decode(next(orders), type=_Task, dec_hook=_path)
    process = _Process(task, rows_of(task.address.url), hook)
    decode = msgspec.json.Decoder(_Order).decode
    try:
        for line in orders:
            answer = process.carry_out(decode(line))
            answers.write(_encode(answer) + b"\n")
            answers.flush()
    finally:
        process.close()


class _Process:
    """The part of sealing that runs in the separate process."""

    def __init__(self, task: _Task, open_rows: OpenRows, hook: Hook) -> None:
        # imported late, because the daemon does not need it, and it would delay the daemon's start
        from groupkeeper.storage.event_log.sealing.work import SealingWork

        pacer = Pacer(sleep=lambda length_s: None)  # this process has no event loop
        self._work = SealingWork(open_rows, task.settings, wall_clock_ms, pacer, hook)
        self._lock_path = task.address.lock
        self._lock: FileLock | None = None

    def carry_out(self, order: _Order) -> _Answer:
        """Execute an order. If it fails, the answer contains the failure."""
        found, is_behind, failure = None, False, ""
        damaged: Sequence[Segment] = ()
        try:
            match order.call:
                case "settle":
                    self._take_lock()
                    found = self._work.settle()
                case "step":
                    is_behind = self._work.step()
                case "retain":
                    damaged = self._work.retain()
                case "finish":
                    self._work.finish(order.limit_s)
        except Exception as error:  # noqa: BLE001 - the daemon logs it and calls settle
            failure = reason_of(error)
        progress = msgspec.structs.replace(self._work.progress, cpu_s=time.process_time())
        return _Answer(progress, found, damaged, is_behind, failure)

    def close(self) -> None:
        """Close the rows and release the lock."""
        try:
            self._work.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def _take_lock(self) -> None:
        """Acquire the lock: only one process at a time seals a store.

        The process of a daemon that was killed may still hold it. Raises SealingFailed after
        ``LOCK_S``.
        """
        until = time.monotonic() + LOCK_S
        while self._lock is None:
            try:
                self._lock = FileLock(self._lock_path)
            except StoreRefused as error:
                if time.monotonic() >= until:
                    raise SealingFailed(
                        f"the process that sealed for the last daemon still holds {self._lock_path}"
                        ".lock, which has its pid in it: its disk hangs, or somebody stopped it. "
                        "Events stay in the store until it has ended; kill -9 may end it"
                    ) from error
                time.sleep(_LOCK_POLL_S)


def _path(kind: type, value: str) -> Path:
    assert issubclass(kind, Path)
    return Path(value)


def lines_until_the_end(source: IO[bytes]) -> Iterator[bytes]:
    """Yield lines as they arrive. After the last line, this process exits within ``END_S``."""
    lines: SimpleQueue[bytes] = SimpleQueue()

    def read() -> None:
        for line in source:
            lines.put(line)
        lines.put(b"")
        time.sleep(END_S)
        os._exit(0)

    threading.Thread(target=read, name="orders", daemon=True).start()
    while line := lines.get():
        yield line


def main(rows_of: RowsOf, hook: Hook = no_hook) -> None:
    """Carry out the orders on stdin until it ends, and write the answers to stdout."""
    ignore_stop_signals()
    with suppress(OSError):  # the process may not be allowed to change it
        os.nice(NICENESS)
    with suppress(BrokenPipeError):  # the daemon has ended, and nobody reads the answer
        serve(rows_of, lines_until_the_end(sys.stdin.buffer), sys.stdout.buffer, hook)
