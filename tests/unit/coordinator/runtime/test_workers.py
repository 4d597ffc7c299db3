"""Assignments in another process: a real one, with assignors that behave badly."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from contextlib import asynccontextmanager

import pytest
import uvloop

from groupkeeper.coordinator.core.consumer.assigning import GroupSpec, assign_uniform
from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentNames, AssignmentWork
from groupkeeper.coordinator.core.work import WorkFailed, WorkFailure
from groupkeeper.coordinator.runtime import workers as module
from groupkeeper.coordinator.runtime.workers import Workers
from tests.helpers.runtime.virtual_loop import turns

SPEC = GroupSpec([4, 2], [[0, 1]], [0, 0], [[0, 1, 2, 3, 4, 5], []])
NAMES = AssignmentNames([("m-1", None), ("m-2", "static")], ["orders", "payments"])
COMMAND = (sys.executable, "-m", "tests.helpers.runtime.bad_assignors")
LONG_MS = 60_000
"""Never reached: no test waits for it."""


def a_work(assignor: str = "uniform", epoch: int = 7, **changes) -> AssignmentWork:
    fields = {"group_id": "g", "epoch": epoch, "assignor": assignor, "spec": SPEC, "names": NAMES}
    return AssignmentWork(**{**fields, **changes})


class Asked:
    """An assignment that was asked for."""

    def __init__(self, workers: Workers, work: AssignmentWork) -> None:
        self.outcome = asyncio.get_running_loop().create_future()
        workers.begin(work, self.outcome.set_result)

    async def failure(self) -> WorkFailure:
        outcome = await self.outcome
        assert isinstance(outcome, WorkFailed), outcome
        return outcome.failure


@asynccontextmanager
async def some_workers(timeout_ms: int = LONG_MS, max_waiting: int = 10, command=COMMAND):
    workers = Workers(timeout_ms, max_waiting, command)
    try:
        yield workers
    finally:
        ended = workers.stop()
        if ended:
            await asyncio.wait(ended)


async def test_a_target_is_computed_in_another_process():
    async with some_workers(command=module.COMMAND) as workers:
        target = await Asked(workers, a_work(names=None)).outcome
        assert target == assign_uniform(SPEC)
        assert workers.outcomes == {("uniform", "computed"): 1}
        assert workers.seconds["uniform"] > 0
        assert workers.waiting == 0


async def test_nothing_is_computed_before_begin_has_returned():
    """The step that asks may still be going on."""
    async with some_workers(max_waiting=0) as workers:
        asked = Asked(workers, a_work())
        assert not asked.outcome.done()
        assert await asked.failure() is WorkFailure.REFUSED


async def test_assignments_wait_for_each_other_and_one_process_computes_all():
    async with some_workers() as workers:
        asked = [Asked(workers, a_work("pid", epoch)) for epoch in range(3)]
        assert workers.waiting == 3
        pids = {(await each.failure(), (await each.outcome).message) for each in asked}
        assert len(pids) == 1
        assert str(os.getpid()) not in str(pids)


async def test_more_than_may_wait_are_refused():
    async with some_workers(max_waiting=2) as workers:
        asked = [Asked(workers, a_work(epoch=epoch)) for epoch in range(3)]
        assert await asked[2].failure() is WorkFailure.REFUSED
        assert [await each.outcome for each in asked[:2]] == [assign_uniform(SPEC)] * 2


@pytest.mark.parametrize(
    ("assignor", "failure", "reason"),
    [
        ("unknown", WorkFailure.RAISED, "KeyError"),
        ("raises", WorkFailure.RAISED, "ZeroDivisionError"),
        ("twice", WorkFailure.INVALID, "have ('orders', 0)"),
        ("exits", WorkFailure.DIED, "ended with 3"),
    ],
)
async def test_what_an_assignor_does_wrong_is_an_outcome_and_the_next_one_is_computed(
    assignor, failure, reason
):
    async with some_workers() as workers:
        asked = Asked(workers, a_work(assignor))
        assert await asked.failure() is failure
        assert reason in (await asked.outcome).message
        assert await Asked(workers, a_work("in_order")).outcome == [[0, 2, 4], [1, 3, 5]]
        assert workers.outcomes[assignor, failure.value] == 1


async def test_an_assignor_that_takes_too_long_is_killed_and_the_next_one_is_computed():
    async with some_workers() as workers:
        await Asked(workers, a_work("in_order")).outcome
        process = workers._process  # so the time is over while it computes, not while it starts
        workers._timeout_ms = 50
        assert await Asked(workers, a_work("endless")).failure() is WorkFailure.TIMED_OUT
        assert process.returncode is not None
        assert workers.killed == 1
        workers._timeout_ms = LONG_MS
        assert await Asked(workers, a_work("in_order")).outcome == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("assignor", ["forks", "forks_away"])
def test_a_process_that_an_assignor_has_started_holds_nobody_up(assignor, loop):
    """On the loop of hosts, and on that of the daemon."""

    async def ask():
        async with some_workers() as workers:
            await Asked(workers, a_work()).outcome
            workers._timeout_ms = 100
            assert await Asked(workers, a_work(assignor)).failure() is WorkFailure.TIMED_OUT
            workers._timeout_ms = LONG_MS
            assert await Asked(workers, a_work("in_order")).outcome == [[0, 2, 4], [1, 3, 5]]

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(ask())


class Started:
    """A process that an assignor has started, which lives for five minutes."""

    def __init__(self, outcome: WorkFailed) -> None:
        self._descriptor = os.pidfd_open(int("".join(filter(str.isdigit, outcome.message))))

    def has_ended(self) -> bool:
        """Wait for the end of the process for a few seconds."""
        try:
            return bool(select.select([self._descriptor], [], [], 10)[0])
        finally:
            os.close(self._descriptor)


async def test_stop_kills_what_an_assignor_has_started():
    async with some_workers() as workers:
        started = Started(await Asked(workers, a_work("starts")).outcome)
        await asyncio.wait(workers.stop())
        assert started.has_ended()


@pytest.mark.parametrize(
    ("assignor", "failure"),
    [("starts", WorkFailure.TIMED_OUT), ("starts_quietly", WorkFailure.DIED)],
)
async def test_what_an_assignor_has_started_is_killed_if_the_process_ends_by_itself(
    assignor, failure
):
    """If the started process holds the pipe, the end is noticed when the time is over."""
    async with some_workers() as workers:
        started = Started(await Asked(workers, a_work(assignor)).outcome)
        if failure is WorkFailure.TIMED_OUT:
            workers._timeout_ms = 100
        assert await Asked(workers, a_work("exits")).failure() is failure
        assert started.has_ended()


async def test_what_an_assignor_has_started_is_killed_when_the_process_was_idle(monkeypatch):
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    async with some_workers() as workers:
        started = Started(await Asked(workers, a_work("starts")).outcome)
        await turns()
        await workers._ending
        assert started.has_ended()


async def test_what_an_assignor_prints_does_not_get_between_the_answers(capfd):
    async with some_workers() as workers:
        assert await Asked(workers, a_work("prints")).outcome == [[0, 2, 4], [1, 3, 5]]
        assert await Asked(workers, a_work("in_order")).outcome == [[0, 2, 4], [1, 3, 5]]
    assert "I am computing" in capfd.readouterr().err


async def test_a_name_that_cannot_be_sent_is_an_outcome():
    names = AssignmentNames([("\ud800", None), ("m-2", None)], NAMES.topics)
    async with some_workers() as workers:
        assert await Asked(workers, a_work("in_order", names=names)).failure() is WorkFailure.RAISED
        assert await Asked(workers, a_work()).outcome == assign_uniform(SPEC)


async def test_a_process_that_cannot_be_started_is_an_outcome():
    async with some_workers(command=("/no/such/program",)) as workers:
        asked = Asked(workers, a_work())
        assert await asked.failure() is WorkFailure.DIED
        assert "No such file" in (await asked.outcome).message


async def test_a_process_that_was_killed_from_outside_is_started_again():
    async with some_workers() as workers:
        await Asked(workers, a_work()).outcome
        first = workers._process
        first.kill()
        await first.wait()
        assert await Asked(workers, a_work()).outcome == assign_uniform(SPEC)
        assert workers._process.pid != first.pid


async def test_a_signal_to_stop_does_not_end_the_process():
    """The daemon gets it too, and ends the process when it stops."""
    async with some_workers() as workers:
        await Asked(workers, a_work()).outcome
        process = workers._process
        process.send_signal(signal.SIGTERM)
        await Asked(workers, a_work()).outcome
        assert workers._process is process


async def test_an_idle_process_is_ended_and_started_again(monkeypatch):
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    async with some_workers() as workers:
        asked = Asked(workers, a_work())
        await asked.outcome
        first = workers._process
        assert await first.wait() == 0
        assert workers._process is None
        assert await Asked(workers, a_work()).outcome == assign_uniform(SPEC)


async def test_a_process_that_gets_work_is_not_idle():
    async with some_workers() as workers:
        await Asked(workers, a_work()).outcome
        await turns()
        idle = workers._idle
        workers.begin(a_work(), lambda _: None)
        assert idle.cancelled()


async def test_a_process_whose_answer_cannot_be_read_is_replaced():
    garbage = "import sys; sys.stdout.buffer.write(bytes([0, 0, 0, 1, 255])); sys.stdin.read()"
    async with some_workers(command=(sys.executable, "-uc", garbage)) as workers:
        assert await Asked(workers, a_work()).failure() is WorkFailure.RAISED
        assert workers._process is None


async def test_stop_kills_an_idle_process():
    async with some_workers() as workers:
        await Asked(workers, a_work()).outcome
        await turns()
        process = workers._process
        await asyncio.wait(workers.stop())
        assert process.returncode == -9


async def test_stop_kills_the_process_in_the_midst_of_a_computation():
    async with some_workers() as workers:
        started = Asked(workers, a_work())
        await started.outcome
        process = workers._process
        asked = [Asked(workers, a_work("endless")), Asked(workers, a_work())]
        await turns()
        await asyncio.wait(workers.stop())
        assert process.returncode == -9
        assert not any(each.outcome.done() for each in asked), "the groups are gone"
        workers.begin(a_work(), pytest.fail)
        assert workers.waiting == 0


async def test_a_process_inherits_no_socket_and_ends_with_its_stdin():
    """It must not hold a port after its daemon has ended."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1")
    async with server, some_workers() as workers:
        asked = Asked(workers, a_work("descriptors"))
        await asked.failure()
        assert (await asked.outcome).message == repr(ValueError("0 sockets"))
        busy = Asked(workers, a_work("endless"))
        await turns()
        process = workers._process
        process.stdin.close()
        assert await busy.failure() is WorkFailure.DIED
        assert process.returncode == 0, "although it was computing"
