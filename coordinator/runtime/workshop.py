"""Passes on the computations that shards ask for: assignments to ``workers``, patterns to
``pattern_index``. If a shard has divided a large step (``FollowWork``), ``done`` is called in the
next iteration of the event loop, so that the shard continues.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentWork
from groupkeeper.coordinator.core.consumer.follow_work import FollowWork
from groupkeeper.coordinator.core.consumer.pattern_work import PatternWork
from groupkeeper.coordinator.core.work import Work, WorkOutcome
from groupkeeper.coordinator.runtime.pattern_index import PatternIndex
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.runtime.workers import Workers


class Begin(Protocol):
    """Starts one kind of computation. ``done`` gets the outcome once, in a later iteration of the
    event loop. ``done`` is never called after a stop.
    """

    def __call__(self, work: Any, done: Callable[[WorkOutcome], None]) -> None: ...


class Workshop:
    """Starts the computations that shards ask for."""

    def __init__(
        self,
        config: CoordinatorConfig,
        image: Callable[[], TopicImage],
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``image`` returns the current topics."""
        self.assignments = Workers(
            config.consumer_assignment_timeout_ms, config.max_waiting_work, timer=timer
        )
        self.patterns = PatternIndex(image, config.max_patterns, config.max_waiting_work, timer)
        self._begin: Final[dict[type[Work], Begin]] = {
            AssignmentWork: self.assignments.begin,
            PatternWork: self.patterns.begin,
            FollowWork: self._follow,
        }
        self._is_stopped = False

    def begin(self, work: Work, done: Callable[[WorkOutcome], None]) -> None:
        """Start a computation of any kind. ``Begin`` says when ``done`` is called."""
        self._begin[type(work)](work, done)

    def _follow(self, work: FollowWork, done: Callable[[WorkOutcome], None]) -> None:
        asyncio.get_running_loop().call_soon(self._continue, done)

    def _continue(self, done: Callable[[WorkOutcome], None]) -> None:
        if not self._is_stopped:
            done(None)

    def stop(self) -> list[asyncio.Task[None]]:
        """Stop all computations. From now on no ``done`` is called. Return the tasks that the
        caller must await.
        """
        self._is_stopped = True
        return [*self.assignments.stop(), *self.patterns.stop()]
