"""Sealing in a process of its own, one a daemon: what it computes fights with no loop for the
interpreter lock (measured: a commit cost 13 to 16 us more with a thread, 5 us with a process).

    python -m groupkeeper.storage.seal

Orders come on stdin, answers go to stdout, a line each.

It ends when its orders end, so it does not outlive its daemon, however that one ended; its
successor waits for its lock. It leaves signals to its daemon. It may be killed at any time: what it
leaves unfinished the next one sets right (``storage.event_log.settling``).
"""

from __future__ import annotations

import os
import select
import signal
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
from groupkeeper.storage.event_log.clock import wall_clock_ms
from groupkeeper.storage.event_log.sealing import Found, Pacer, Progress, SealSettings
from groupkeeper.storage.event_log.segments import Hook, Segment, no_hook
from groupkeeper.storage.event_log.source import Address, OpenRows
from groupkeeper.storage.file_lock import FileLock

COMMAND = (sys.executable, "-m", "groupkeeper.storage.seal")

NICENESS: Final = 5
"""Behind the loop, where the cores do not suffice for both."""

END_S: Final = 0.5
"""What the process may take to end once its orders have; then it ends in the middle of its work."""
LOCK_S: Final = 1.0
"""How long the predecessor may take to notice that its daemon has gone; one that hangs takes
longer, and is waited for beside the work."""
ANSWER_S: Final = {"settle": 60.0, "step": 60.0, "finish": 60.0, "retain": 3600.0}
"""After so long without an answer the process is taken to hang, and killed. A step works for 0.1 s
and may have to sync a file; retention reads a whole day."""
_LOCK_POLL_S: Final = 0.02


class SealingFailed(Exception):
    """A call failed in the process, or the process ended; the message says how."""


class _Task(msgspec.Struct):
    """The first line: what is sealed."""

    address: Address
    settings: SealSettings


class _Order(msgspec.Struct, omit_defaults=True):
    """A call of ``storage.event_log.sealing_work.Sealing``."""

    call: Literal["settle", "step", "retain", "finish"]
    limit_s: float = 0.0


class _Answer(msgspec.Struct, omit_defaults=True):
    """What became of it."""

    progress: Progress
    found: Found | None = None
    damaged: Sequence[Segment] = ()
    is_behind: bool = False
    error: str = ""


_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
_decode_answer: Final = msgspec.json.Decoder(_Answer).decode


class SealingProcess:
    """The daemon's end: starts the process when it is told to settle, and asks it to work."""

    def __init__(
        self, address: Address, settings: SealSettings, command: Sequence[str] | None = None
    ) -> None:
        """Start nothing yet. ``command`` is what runs ``main``: a seam for tests."""
        self.progress = Progress()
        self._task = _Task(address, settings)
        self._command = command or COMMAND
        self._process: subprocess.Popen[bytes] | None = None

    def settle(self) -> Found:
        """Start the process if there is none; find out what is sealed, and go on from there."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        found = self._call(_Order("settle")).found
        assert found is not None
        return found

    def step(self) -> bool:
        """Take rows for a while; tells whether there are more."""
        return self._call(_Order("step")).is_behind

    def retain(self) -> Sequence[Segment]:
        """Let go of what is beyond the horizon; returns what of it could not be read."""
        return self._call(_Order("retain")).damaged

    def finish(self, limit_s: float) -> None:
        """Seal all rows, or none beyond those that fit into the time."""
        self._call(_Order("finish", limit_s))

    def close(self) -> None:
        """End the process."""
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
                process.wait(END_S)  # one that hangs in the kernel ends when that lets go of it
        process.stdout.close()

    def abandon(self) -> None:
        """End the process at once; may be called beside a call, which fails then."""
        if self._process is not None:
            self._process.kill()

    def _start(self) -> None:
        self.close()
        # Where this process found its modules, and not in a directory that happens to be current.
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(  # noqa: S603 - ours, nothing of it comes from outside
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"},
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
        self.progress = answer.progress
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
"""From the URL of a store to what opens its rows: ``storage.open.rows_of``."""


def serve(
    rows_of: RowsOf, orders: Iterator[bytes], answers: IO[bytes], hook: Hook = no_hook
) -> None:
    """Carry out orders until they end. ``hook`` is called between the steps: a seam for tests."""
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
    """The other end."""

    def __init__(self, task: _Task, open_rows: OpenRows, hook: Hook) -> None:
        # late: the daemon's end, which groups wait for, needs none of it
        from groupkeeper.storage.event_log.sealing_work import SealingWork

        pacer = Pacer(sleep=lambda length_s: None)  # there is no loop to make way for
        self._work = SealingWork(open_rows, task.settings, wall_clock_ms, pacer, hook)
        self._lock_path = task.address.lock
        self._lock: FileLock | None = None

    def carry_out(self, order: _Order) -> _Answer:
        """Do what is asked for; an answer in any case."""
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
        except Exception as error:  # noqa: BLE001 - the daemon tells it and settles again
            failure = str(error) or repr(error)
        progress = msgspec.structs.replace(self._work.progress, cpu_s=time.process_time())
        return _Answer(progress, found, damaged, is_behind, failure)

    def close(self) -> None:
        """Let go of everything."""
        try:
            self._work.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def _take_lock(self) -> None:
        """One process seals a store at a time: that of a daemon which was killed may not have
        noticed yet. Raises StoreRefused where it takes too long.
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
    """Yield lines as they come; once there are no more, whoever takes them has ``END_S`` to end."""
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
    """Be the process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):  # a service may not be allowed to
        os.nice(NICENESS)
    with suppress(BrokenPipeError):  # the daemon has gone, and nobody waits for this answer
        serve(rows_of, lines_until_the_end(sys.stdin.buffer), sys.stdout.buffer, hook)
