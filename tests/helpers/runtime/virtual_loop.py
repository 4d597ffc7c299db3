"""An event loop whose time is a counter: nothing sleeps, and every run of a test is the same.

    @virtual_time
    async def test_something():
        await asyncio.sleep(3600)        # takes no time

If nothing is ready, the clock jumps to the next timer. If there is no timer either, the test would
wait for ever, so an error is raised at once.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from groupkeeper.coordinator.core.now import Now

P = ParamSpec("P")
T = TypeVar("T")

START_WALL_MS = 1_700_000_000_000


class EndlessError(Exception):
    """The loop made more than the allowed number of turns."""


class _JumpingSelector(selectors.SelectSelector):
    """Adds the timeout to the loop's time instead of waiting for it."""

    def __init__(self, most_turns: int | None) -> None:
        super().__init__()
        self.now_s = 1_000.0
        self._most_turns = most_turns
        self._turns = 0

    def select(self, timeout: float | None = None) -> Any:
        self._turns += 1
        if self._most_turns is not None and self._turns > self._most_turns:
            self._turns = 0  # the end of the tasks may take as many turns
            raise EndlessError(
                f"does not end: {self._most_turns} turns of the loop, at {self.now_s:.3f} s of its "
                "time; something goes round and round, or waits for what never comes"
            )
        if timeout is None:
            raise RuntimeError("waits for ever: nothing is ready and no timer is set")
        self.now_s += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop in virtual time. Raises EndlessError after ``most_turns`` turns, if that is set."""

    def __init__(self, most_turns: int | None = None) -> None:
        self._jumping = _JumpingSelector(most_turns)
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass while nothing runs, like a stopped process or a slow callback."""
        self._jumping.now_s += seconds


class VirtualClock:
    """The clocks of a coordinator on a virtual loop; both can be set."""

    def __init__(self) -> None:
        self.wall_offset_ms = 0
        self.monotonic_offset_ms = 0

    def now(self) -> Now:
        time_ms = round(asyncio.get_running_loop().time() * 1000)
        wall_ms = START_WALL_MS + time_ms + self.wall_offset_ms
        return Now(time_ms + self.monotonic_offset_ms, wall_ms)


def virtual_timer() -> float:
    """Return the loop's time. It measures slices of work."""
    return asyncio.get_running_loop().time()


def run_virtual(scenario: Coroutine[Any, Any, T], most_turns: int | None = None) -> T:
    """Run a coroutine to its end on its own virtual loop. A limit of turns ends a coroutine that
    repeats for ever or makes no progress.
    """
    with asyncio.Runner(loop_factory=functools.partial(VirtualLoop, most_turns)) as runner:
        return runner.run(scenario)


def virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a test of a coroutine function, on a virtual loop."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    return run


async def turns(count: int = 1) -> None:
    """Let the loop turn. No time passes."""
    for _ in range(count):
        await asyncio.sleep(0)
