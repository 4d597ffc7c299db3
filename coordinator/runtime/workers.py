"""Computes target assignments, one after the other, in one child process.

The process starts when it is needed, and ends after it was idle for a while. It is killed if a
computation takes too long. If the process fails, the outcome of the computation is ``WorkFailed``.
No exception is raised.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

import structlog

from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentWork
from groupkeeper.coordinator.core.work import WorkFailed, WorkFailure, WorkOutcome
from groupkeeper.coordinator.runtime.line_limit import LineLimit
from groupkeeper.coordinator.runtime.work_process import (
    LENGTH_BYTES,
    AssignmentOrder,
    decode_answer,
    frame,
)
from groupkeeper.storage.python_child import child_environment

log = structlog.get_logger(__name__)

COMMAND: Final = (sys.executable, "-m", "groupkeeper.coordinator.embed.assign")
IDLE_S: Final = 60.0
"""The process ends after this time without work. A start takes 0.3 s. While it runs it needs 25 MB.
"""
END_S: Final = 1.0
"""How long to wait for the exit of a process that has closed its pipe. Then it is killed."""
EXIT_POLL_S: Final = 0.002
"""How often to look whether a killed process has ended."""
LINES: Final = 5
WINDOW_S: Final = 60.0
"""In each window of this length, at most ``LINES`` lines about failures are logged for each
assignor.
"""

WorkDone: TypeAlias = Callable[[WorkOutcome], None]
"""Called once with the outcome of a computation, in a later iteration of the event loop. It is
never called after ``stop``.
"""


class _Waiting(NamedTuple):
    work: AssignmentWork
    done: WorkDone


class Workers:
    """The queue of assignments, and the process that computes them."""

    def __init__(
        self,
        timeout_ms: int,
        max_waiting: int,
        command: Sequence[str] = COMMAND,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Create the object without a process. ``command`` runs ``work_process.main``."""
        self._timeout_ms = timeout_ms
        self._max_waiting = max_waiting
        self._command = command
        self._timer = timer
        self._waiting: deque[_Waiting] = deque()
        self._process: asyncio.subprocess.Process | None = None
        self._running: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        """The end of a process that was idle."""
        self._is_stopped = False
        self._lines = LineLimit(timer, WINDOW_S, LINES)
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """The number of computations, by (assignor, outcome). The outcome is ``computed`` or a
        ``WorkFailure``."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """The time that successful computations took, by assignor. It includes the start of the
        process."""
        self.killed = 0
        """The number of times that the process was killed because it took too long."""

    @property
    def waiting(self) -> int:
        """The number of assignments that wait or are being computed."""
        return len(self._waiting)

    def begin(self, work: AssignmentWork, done: WorkDone) -> None:
        """Queue an assignment. ``done`` gets the ``Target``, or ``WorkFailed``."""
        if self._is_stopped:
            return
        loop = asyncio.get_running_loop()
        if len(self._waiting) >= self._max_waiting:
            message = f"{len(self._waiting)} assignments wait already"
            loop.call_soon(done, self._failed(work, WorkFailure.REFUSED, message))
            return
        self._waiting.append(_Waiting(work, done))
        if self._idle is not None:
            self._idle.cancel()
        if self._running is None:
            self._running = loop.create_task(self._run())

    def stop(self) -> list[asyncio.Task[None]]:
        """Kill the process and drop the waiting assignments. Return the tasks that the caller must
        await.
        """
        self._is_stopped = True
        self._waiting.clear()
        if self._idle is not None:
            self._idle.cancel()
        ending = [] if self._ending is None else [self._ending]
        if self._running is not None:
            self._running.cancel()
            return [self._running, *ending]
        if self._process is not None:
            return [asyncio.get_running_loop().create_task(self._kill()), *ending]
        return ending

    async def _run(self) -> None:
        """Compute the waiting assignments, one after the other."""
        try:
            while self._waiting:
                work, done = self._waiting[0]
                outcome = await self._carry_out(work)
                self._waiting.popleft()
                done(outcome)
            self._running = None
            loop = asyncio.get_running_loop()
            self._idle = loop.call_later(IDLE_S, self._end_idle)
        except BaseException:  # cancelled by ``stop``
            await self._kill()
            raise

    async def _carry_out(self, work: AssignmentWork) -> WorkOutcome:
        began_s = self._timer()
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                answer = decode_answer(await self._ask(work))
        except TimeoutError:
            await self._kill()
            self.killed += 1
            message = f"it was killed after {self._timeout_ms} ms"
            return self._failed(work, WorkFailure.TIMED_OUT, message)
        except (OSError, EOFError) as error:
            return self._failed(work, WorkFailure.DIED, await self._death(error))
        except Exception as error:  # noqa: BLE001 - such as a name that is not UTF-8
            await self._kill()  # the pipe may still have the rest of its answer
            return self._failed(work, WorkFailure.RAISED, repr(error))
        if answer.failure:
            return self._failed(work, WorkFailure(answer.failure), answer.message)
        self.outcomes[work.assignor, "computed"] += 1
        self.seconds[work.assignor] += self._timer() - began_s
        return answer.target

    async def _ask(self, work: AssignmentWork) -> bytes:
        order = frame(AssignmentOrder(work.assignor, work.spec, work.names))
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(order)
        await process.stdin.drain()
        length = await process.stdout.readexactly(LENGTH_BYTES)
        return await process.stdout.readexactly(int.from_bytes(length))

    async def _start(self) -> asyncio.subprocess.Process:
        """Start the process. It is a new program, so it inherits no lock, thread or descriptor. It
        leads its own process group; uvloop has only ``start_new_session`` for that.
        """
        return await asyncio.create_subprocess_exec(
            *self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
            start_new_session=True,
        )

    async def _kill(self) -> None:
        """Kill the process, and those that an assignor has started."""
        process, self._process = self._process, None
        if process is not None:
            await _kill(process)

    async def _death(self, error: OSError | EOFError) -> str:
        """Return a text for the log: how the process ended, or why it could not be started."""
        process = self._process
        if process is None:
            return str(error)
        await _wait_briefly(process)
        await self._kill()
        return f"the process (pid {process.pid}) ended with {process.returncode}"

    def _end_idle(self) -> None:
        """End the process, because it has been idle."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            self._ending = asyncio.get_running_loop().create_task(_end(process))

    def _failed(self, work: AssignmentWork, failure: WorkFailure, message: str) -> WorkFailed:
        self.outcomes[work.assignor, failure.value] += 1
        left_out = self._lines.allow(work.assignor)
        if left_out is not None:
            log.warning(
                "assignment_failed",
                group=work.group_id,
                assignor=work.assignor,
                members=len(work.spec.members),
                partitions=sum(work.spec.partition_counts),
                failure=failure.value,
                reason=message,
                left_out=left_out,
            )
        return WorkFailed(failure, message)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let a process end by itself. Then kill what is left of its group."""
    await _wait_briefly(process)
    await _kill(process)


async def _wait_briefly(process: asyncio.subprocess.Process) -> None:
    with suppress(TimeoutError):  # a signal sent now could hide the exit code
        async with asyncio.timeout(END_S):
            await process.wait()


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process and its process group, in which an assignor may have started more.

    One that has left the process group lives on, and may hold the other ends of the pipes. So the
    pipes are closed here, because ``wait`` waits for them too. But only when the process has ended:
    asyncio would take its exit code, before the watcher of the process has it.
    """
    if process.returncode is None or not _exists(process.pid):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    while process.returncode is None:  # noqa: ASYNC110 - asyncio tells it no other way
        await asyncio.sleep(EXIT_POLL_S)
    process._transport.close()  # type: ignore[attr-defined]
    await process.wait()


def _exists(pid: int) -> bool:
    """Return True if a process has this id. If our process has ended, this is another process. A
    kernel does not give the id of an existing process group to a new process, so our process group
    is empty then.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        return True
    return True
