"""Finds the topics that match the patterns of consumer groups. Each pattern is compared with each
name of a topic only once, for all groups.

A hostile pattern needs half a second for 10,000 names, so the names are compared in slices. There
may be 100,000 topics, so new names are also learned in slices, and the topics found are sorted in
slices.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
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
"""How long names are learned, compared or sorted in one iteration of the event loop."""
NAMES_AT_ONCE: Final = 16
"""The number of names that are compared between two readings of the timer. One name takes up to 44
us, with the slowest pattern."""
MANY_AT_ONCE: Final = 512
"""The number of names that are learned or sorted between two readings of the timer. This takes up
to 0.3 ms."""
UNUSED_S: Final = 1_200.0
"""A pattern may be replaced by a new one if no group has asked for it in this time. A group asks
again after half this time (docs/spec/consumer-groups.md#regex).
"""
UNRESOLVED_S: Final = 30.0
"""As ``UNUSED_S``, but for a pattern whose topics no group has ever asked for. Then the member that
sent it was refused, because the group of an accepted member asks with the same heartbeat or within
ten seconds.
"""
MAX_GONE_NAMES: Final = 10_000
"""The index keeps the names of deleted topics. It is cleared when it has more names than twice the
number of topics plus this number."""


LINES: Final = 5
WINDOW_S: Final = 60.0
"""In each window of this length, at most ``LINES`` lines about patterns are logged."""

log = structlog.get_logger(__name__)


class _Pattern:
    """One pattern, and the names that it matches so far."""

    __slots__ = ("asked_s", "is_resolved", "matched", "met", "topics", "version")

    def __init__(self, asked_s: float) -> None:
        self.asked_s = asked_s
        self.is_resolved = False
        """True if a group has asked for the topics that the pattern matches."""
        self.met = 0
        """The number of names that the pattern was compared with so far."""
        self.matched: list[str] = []
        self.topics: tuple[str, ...] = ()
        """The names in ``matched`` of topics that exist, sorted."""
        self.version = -1
        """The version of the list of topics from which ``topics`` was made. -1: none yet."""


class _Waiting(NamedTuple):
    work: PatternWork
    done: WorkDone


class PatternIndex:
    """The patterns of all groups of a process, and the topics that each pattern matches."""

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
        """The known patterns. Each request for a pattern moves it to the end. So the first pattern
        is the least recently used."""
        self._names: list[tuple[str, bytes]] = []
        """Every name of a topic once, in the order of creation, as text and as bytes."""
        self._known: set[str] = set()
        self._version = -1
        """The version of the list of topics whose names are in the index. -1: no names yet."""
        self._waiting: deque[_Waiting] = deque()
        self._running: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._lines = LineLimit(timer, WINDOW_S, LINES)

    @property
    def patterns(self) -> int:
        """The number of known patterns."""
        return len(self._patterns)

    @property
    def waiting(self) -> int:
        """The number of groups that wait for their patterns."""
        return len(self._waiting)

    def error(self, pattern: str) -> str | None:
        """Add a pattern, or note that it is used. Return None, or the reason why a member must not
        subscribe to it. For a known pattern this costs one look-up.
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
        """Start to find the topics that the patterns of a group match. ``done`` gets
        ``PatternMatches``, or ``WorkFailed``.
        """
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
        """Stop. From now on no ``done`` is called. Return the task that the caller must await, if
        there is one.
        """
        self._is_stopped = True
        self._waiting.clear()
        if self._running is None:
            return []
        self._running.cancel()
        return [self._running]

    async def _run(self) -> None:
        """Find the topics of the patterns of every group that waits, and call its ``done``."""
        while self._waiting:
            work, done = self._waiting[0]
            image = self._image()
            await self._in_slices(self._learn(image))
            topics: dict[str, tuple[str, ...]] = {}
            for text in work.patterns:
                await self._in_slices(self._meet(text))
                pattern = self._patterns.get(text)
                if pattern is not None:
                    await self._in_slices(self._sort(pattern, image))
                    topics[text] = pattern.topics
                await asyncio.sleep(0)
            self._waiting.popleft()
            done(PatternMatches(image.version, topics))
        self._running = None

    async def _in_slices(self, steps: Iterator[None]) -> None:
        """Do all steps. Let other work of the event loop go on after each ``SLICE_S``."""
        until_s = self._timer() + SLICE_S
        for _ in steps:
            if self._timer() > until_s:
                await asyncio.sleep(0)
                until_s = self._timer() + SLICE_S

    def _learn(self, image: TopicImage) -> Iterator[None]:
        """Add the names of new topics to the index. They are compared with the patterns later.
        Yield after each ``MANY_AT_ONCE`` topics.
        """
        if image.version == self._version:
            return
        if len(self._names) > 2 * len(image.by_name) + MAX_GONE_NAMES:
            self._names.clear()
            self._known.clear()
            for pattern in self._patterns.values():
                pattern.met = 0
                pattern.matched.clear()
        topics = iter(image.by_name)
        while some := list(islice(topics, MANY_AT_ONCE)):
            new = [name for name in some if name not in self._known]
            self._known.update(new)
            self._names += [(name, name.encode()) for name in new]
            yield
        self._version = image.version

    def _meet(self, text: str) -> Iterator[None]:
        """Compare a pattern with the names that it was not compared with yet. Yield after each
        ``NAMES_AT_ONCE`` names.

        If this process cannot use the pattern, the index forgets it. Such a pattern was stored by
        another process, which could use it.
        """
        pattern = self._hold(text)
        pattern.is_resolved = True
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

    def _sort(self, pattern: _Pattern, image: TopicImage) -> Iterator[None]:
        """Sort the topics that match a pattern, unless they are sorted for this image already.
        Yield after each ``MANY_AT_ONCE`` names.
        """
        if pattern.version == image.version:
            return
        runs = []
        matched = iter(pattern.matched)
        while some := list(islice(matched, MANY_AT_ONCE)):
            runs.append(sorted([name for name in some if name in image.by_name]))
            yield
        topics: list[str] = []
        merged = merge(*runs)
        while some := list(islice(merged, MANY_AT_ONCE)):
            topics += some
            yield
        pattern.topics = tuple(topics)
        pattern.version = image.version

    def _log(self, text: str, error: PatternRefusedError) -> None:
        left_out = self._lines.allow("")
        if left_out is not None:
            log.warning("pattern_not_resolved", pattern=text, reason=str(error), left_out=left_out)

    def _hold(self, text: str) -> _Pattern:
        """Return the entry of a pattern, and mark it as used just now."""
        now_s = self._timer()
        pattern = self._patterns.pop(text, None) or _Pattern(now_s)
        pattern.asked_s = now_s
        self._patterns[text] = pattern
        return pattern

    def _has_room(self) -> bool:
        """Return True if there is room for one more pattern. If necessary, forget patterns that no
        group has asked for recently.
        """
        while len(self._patterns) >= self._max_patterns:
            text = self._unused()
            if text is None:
                return False
            del self._patterns[text]
        return True

    def _unused(self) -> str | None:
        """Return a pattern that may be replaced, or None."""
        now_s = self._timer()
        for text, pattern in self._patterns.items():
            age_s = now_s - pattern.asked_s
            if age_s < UNRESOLVED_S:
                break  # all others were used later
            if age_s >= UNUSED_S or not pattern.is_resolved:
                return text
        return None
