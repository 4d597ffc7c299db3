"""Whoever waits for something in the loop of another thread is told when that thread ends."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from groupkeeper.coordinator.testkit.loop_thread import LoopThread

ENOUGH_S = 30
"""Only a failure waits for it."""


async def answer() -> int:
    return 42


async def nothing() -> None:
    pass


def thread_with_a_loop(at_end: Callable[[], Awaitable[None]] = nothing) -> LoopThread:
    thread = LoopThread("of a test", "it does not run", at_end)
    thread.start()
    return thread


def in_a_thread(work: Any) -> tuple[threading.Thread, list[object]]:
    """Do it elsewhere; what it returned or raised is in the list."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(work())
        except RuntimeError as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def told(results: list[object]) -> list[tuple[type, str]]:
    return [(type(result), str(result)) for result in results]


def test_it_does_what_it_is_given_and_may_begin_again():
    thread = LoopThread("of a test", "it does not run", nothing)
    for _ in range(2):
        thread.start()
        assert thread.do(answer()) == 42
        assert thread.call(threading.current_thread) is not threading.current_thread()
        thread.end()


def test_what_comes_when_it_has_ended_is_refused():
    thread = thread_with_a_loop()
    thread.end()
    with pytest.raises(RuntimeError, match="it does not run"):
        thread.do(answer())
    gc.collect()  # a coroutine that nobody awaits would be a warning, and warnings are errors here


def test_who_waits_when_it_ends_is_told():
    thread = thread_with_a_loop()
    begun = threading.Event()

    async def for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    waiting, results = in_a_thread(lambda: thread.do(for_ever()))
    assert begun.wait(ENOUGH_S)
    thread.end()
    waiting.join(ENOUGH_S)
    assert told(results) == [(RuntimeError, "the server was stopped")]


def test_who_comes_while_it_ends_is_told_at_once():
    """The loop has stopped and is not closed: it would take the call, and never get to it."""
    thread = thread_with_a_loop()
    begun, results = threading.Event(), []

    async def asks_at_its_end() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            late, told_late = in_a_thread(lambda: thread.do(answer()))
            late.join(1)
            results.extend(told_late or ["still waiting"])

    waiting, _ = in_a_thread(lambda: thread.do(asks_at_its_end()))
    assert begun.wait(ENOUGH_S)
    thread.end()
    waiting.join(ENOUGH_S)
    assert told(results) == [(RuntimeError, "it does not run")]


def test_the_last_that_it_does_is_what_it_was_made_with():
    ends: list[str] = []

    async def at_end() -> None:
        ends.append(threading.current_thread().name)

    thread = thread_with_a_loop(at_end)
    thread.end()
    thread.end()  # it has ended
    assert ends == ["of a test"]


def test_what_its_last_work_raises_is_raised_by_the_end():
    async def at_end() -> None:
        raise OSError("the disk is full")

    thread = thread_with_a_loop(at_end)
    with pytest.raises(OSError, match="the disk is full"):
        thread.end()
    thread.start()  # and it may begin again
    assert thread.do(answer()) == 42
    with pytest.raises(OSError, match="the disk is full"):
        thread.end()


def test_an_end_that_is_interrupted_goes_on_and_another_waits_for_it():
    """Ctrl-C while a test's server stops: the port was held for the rest of the run."""
    begun, may_end = threading.Event(), threading.Event()

    async def at_end() -> None:
        begun.set()
        await asyncio.to_thread(may_end.wait, ENOUGH_S)

    thread = thread_with_a_loop(at_end)
    waiting = threading.main_thread().ident
    assert waiting is not None
    # A shell starts background jobs with SIGINT ignored, and Python leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        begun.wait(ENOUGH_S)
        signal.pthread_kill(waiting, signal.SIGINT)  # wakes it, as Ctrl-C does

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            thread.end()
    finally:
        signal.signal(signal.SIGINT, before)
        interrupting.join()
        may_end.set()
    thread.end()
    assert not thread.runs
    assert "of a test" not in [alive.name for alive in threading.enumerate()]
