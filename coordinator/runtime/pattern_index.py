"""The topics of each pattern, for all groups: a pattern meets the name of a topic once.

A hostile pattern needs half a second for 10,000 names, so it is matched in slices.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.consumer.pattern_work import PatternMatches, PatternWork
from groupkeeper.coordinator.core.work import WorkFailed, WorkFailure
from groupkeeper.coordinator.runtime.line_limit import LineLimit
from groupkeeper.coordinator.runtime.patterns import PatternRefusedError, compile_pattern

if TYPE_CHECKING:
    from groupkeeper.coordinator.runtime.workers import WorkDone

SLICE_S: Final = 0.002
"""How long patterns are matched in one turn of the loop."""
NAMES_AT_ONCE: Final = 16
"""How many names are matched between two looks at the timer: the worst one tried takes 44 us."""
UNUSED_S: Final = 1_200.0
"""After this time without a question, a pattern may be forgotten for a new one. Groups ask twice as
often (docs/spec/consumer-groups.md#regex).
"""
MAX_GONE_NAMES: Final = 10_000
"""How many deleted topics stay in the index, at most, beside twice as many as exist."""


LINES: Final = 5
WINDOW_S: Final = 60.0
"""At most so many lines about patterns in this time."""

log = structlog.get_logger(__name__)


class _Pattern:
    """What one pattern has met so far."""

    __slots__ = ("asked_s", "matched", "met")

    def __init__(self, asked_s: float) -> None:
        self.asked_s = asked_s
        self.met = 0
        """How many of the names it has met."""
        self.matched: list[str] = []


class _Waiting(NamedTuple):
    work: PatternWork
    done: WorkDone


class PatternIndex:
    """The patterns of all groups of a process."""

    def __init__(
        self,
        image: Callable[[], TopicImage],
        max_patterns: int,
        max_waiting: int,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``image`` returns the current topics."""
        self._image = image
        self._max_patterns = max_patterns
        self._max_waiting = max_waiting
        self._timer = timer
        self._patterns: dict[str, _Pattern] = {}
        """The one that was asked for longest ago is the first."""
        self._names: list[tuple[str, bytes]] = []
        """Every name once, in the order of its creation, as text and as bytes."""
        self._known: set[str] = set()
        self._version = -1
        """Of the image whose names are known."""
        self._waiting: deque[_Waiting] = deque()
        self._running: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._lines = LineLimit(timer, WINDOW_S, LINES)

    @property
    def patterns(self) -> int:
        """How many patterns are held."""
        return len(self._patterns)

    @property
    def waiting(self) -> int:
        """How many groups wait for their patterns."""
        return len(self._waiting)

    def error(self, pattern: str) -> str | None:
        """Return why a member must not subscribe to a pattern, or None. A pattern that is held
        costs a look into a dict.
        """
        if pattern in self._patterns:
            self._hold(pattern)
            return None
        if not self._has_room():
            return f"the coordinator holds {self._max_patterns} different patterns already"
        try:
            compile_pattern(pattern)
        except PatternRefusedError as error:
            return str(error)
        self._hold(pattern)
        return None

    def begin(self, work: PatternWork, done: WorkDone) -> None:
        """Resolve the patterns of a group. ``done`` gets ``PatternMatches``, or ``WorkFailed``."""
        if self._is_stopped:
            return
        loop = asyncio.get_running_loop()
        if len(self._waiting) >= self._max_waiting:
            message = f"the patterns of {len(self._waiting)} groups wait already"
            loop.call_soon(done, WorkFailed(WorkFailure.REFUSED, message))
            return
        self._waiting.append(_Waiting(work, done))
        if self._running is None:
            self._running = loop.create_task(self._run())

    def stop(self) -> list[asyncio.Task[None]]:
        """End the work, without outcomes. Return the task that this still takes."""
        self._is_stopped = True
        self._waiting.clear()
        if self._running is None:
            return []
        self._running.cancel()
        return [self._running]

    async def _run(self) -> None:
        """Resolve all that waits."""
        while self._waiting:
            work, done = self._waiting[0]
            image = self._image()
            self._learn(image)
            topics: dict[str, tuple[str, ...]] = {}
            for pattern in work.patterns:
                until_s = self._timer() + SLICE_S
                for _ in self._meet(pattern):
                    if self._timer() > until_s:
                        await asyncio.sleep(0)
                        until_s = self._timer() + SLICE_S
                if pattern in self._patterns:
                    found = self._patterns[pattern].matched
                    topics[pattern] = tuple(sorted([n for n in found if n in image.by_name]))
                await asyncio.sleep(0)
            self._waiting.popleft()
            done(PatternMatches(image.version, topics))
        self._running = None

    def _learn(self, image: TopicImage) -> None:
        """Add the names of new topics. Patterns have not met them yet."""
        if image.version == self._version:
            return
        self._version = image.version
        if len(self._names) > 2 * len(image.by_name) + MAX_GONE_NAMES:
            self._names.clear()
            self._known.clear()
            for pattern in self._patterns.values():
                pattern.met = 0
                pattern.matched.clear()
        new = [name for name in image.by_name if name not in self._known]
        self._known.update(new)
        self._names += [(name, name.encode()) for name in new]

    def _meet(self, text: str) -> Iterator[None]:
        """Match a pattern with the names that it has not met, some at a time.

        A pattern that cannot be used here is forgotten. It was stored by a process that could.
        """
        pattern = self._hold(text)
        names = self._names
        if pattern.met == len(names):
            return
        try:
            matches = compile_pattern(text).fullmatch
        except PatternRefusedError as error:
            del self._patterns[text]
            self._log(text, error)
            return
        while pattern.met < len(names):
            some = names[pattern.met : pattern.met + NAMES_AT_ONCE]
            pattern.matched += [name for name, encoded in some if matches(encoded)]
            pattern.met += len(some)
            yield

    def _log(self, text: str, error: PatternRefusedError) -> None:
        left_out = self._lines.allow("")
        if left_out is not None:
            log.warning("pattern_not_resolved", pattern=text, reason=str(error), left_out=left_out)

    def _hold(self, text: str) -> _Pattern:
        """Return what a pattern has met, and note that it is in use."""
        now_s = self._timer()
        pattern = self._patterns.pop(text, None) or _Pattern(now_s)
        pattern.asked_s = now_s
        self._patterns[text] = pattern
        return pattern

    def _has_room(self) -> bool:
        """Return whether one more pattern may be held. Forget those that nobody has asked for."""
        while len(self._patterns) >= self._max_patterns:
            text, oldest = next(iter(self._patterns.items()))
            if self._timer() - oldest.asked_s < UNUSED_S:
                return False
            del self._patterns[text]
        return True
