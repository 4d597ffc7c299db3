"""The thread that does the blocking work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from groupkeeper.storage.job_thread import JobThread


@pytest.fixture
async def thread() -> AsyncIterator[JobThread]:
    thread = JobThread("test")
    yield thread
    thread.stop()


async def test_jobs_run_in_order_on_one_thread_that_is_not_the_loops(thread: JobThread) -> None:
    names = [thread.submit(lambda: threading.current_thread().name) for _ in range(3)]
    assert await asyncio.gather(*names) == ["test"] * 3
    seen: list[int] = []
    await asyncio.gather(*(thread.submit(lambda n=n: seen.append(n)) for n in range(50)))  # type: ignore[misc]
    assert seen == list(range(50))


async def test_what_a_job_raises_reaches_its_caller_and_the_thread_goes_on(
    thread: JobThread,
) -> None:
    with pytest.raises(ZeroDivisionError):
        await thread.submit(lambda: 1 // 0)
    assert await thread.submit(lambda: 7) == 7


async def test_a_job_given_up_before_it_began_is_skipped(thread: JobThread) -> None:
    let_go = threading.Event()
    done: list[str] = []
    first = thread.submit(lambda: let_go.wait(20))
    second = thread.submit(lambda: done.append("second"))
    third = thread.submit(lambda: done.append("third"))
    second.cancel()
    let_go.set()
    await asyncio.gather(first, third)
    assert done == ["third"]


async def test_what_follows_a_job_runs_after_its_result_left_and_before_the_next(
    thread: JobThread,
) -> None:
    let_go = threading.Event()
    done: list[str] = []

    def follow() -> None:
        let_go.wait(20)
        done.append("followed")

    assert await thread.submit(lambda: "result", follow) == "result"
    assert done == []
    let_go.set()
    await thread.submit(lambda: done.append("next"))
    assert done == ["followed", "next"]


async def test_nothing_follows_a_job_that_raised(thread: JobThread) -> None:
    done: list[str] = []
    with pytest.raises(ZeroDivisionError):
        await thread.submit(lambda: 1 // 0, lambda: done.append("followed"))
    await thread.submit(lambda: None)
    assert done == []


def test_jobs_behind_one_whose_loop_has_closed_are_done_all_the_same() -> None:
    let_go, done = threading.Event(), threading.Event()

    async def life() -> None:
        thread = JobThread("test")
        thread.submit(lambda: let_go.wait(20))
        thread.submit(done.set)
        thread.stop()

    asyncio.run(life())
    let_go.set()
    assert done.wait(20)


async def test_what_follows_a_job_may_raise_and_the_next_jobs_still_end(
    thread: JobThread,
) -> None:
    with capture_logs() as logs:
        assert await thread.submit(lambda: 7, lambda: 1 // 0) == 7  # type: ignore[arg-type,return-value]
        assert await asyncio.wait_for(thread.submit(lambda: 8), 20) == 8
    assert [line["event"] for line in logs] == ["job_follow_up_failed"]
