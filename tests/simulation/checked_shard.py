"""A shard whose invariants are checked after each of its steps: those that answer, those that
follow from time, topics or configs, and the one that ends a load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.core.group_configs import GroupSettings
from coordinator.core.invariants import check
from coordinator.core.limits import CoreLimits
from coordinator.core.records import Record
from coordinator.core.requests import Now, Request
from coordinator.core.shard import Shard
from coordinator.core.step import Step, Ticket
from coordinator.core.topic_image import TopicImage
from tests.simulation.history import Durable


class CheckedShard(Shard):
    """Does what its base does, and notes what does not hold afterwards."""

    def __init__(
        self, shard_id: int, limits: CoreLimits, image: TopicImage, durable: Durable
    ) -> None:
        super().__init__(shard_id, limits, image)
        self._durable = durable
        self._is_loaded = False

    def handle(self, request: Request, ticket: Ticket, now: Now) -> Step:
        return self._checked(super().handle(request, ticket, now))

    def expire(self, now: Now) -> Step:
        return self._checked(super().expire(now))

    def topics_changed(self, image: TopicImage, now: Now) -> Step:
        return self._checked(super().topics_changed(image, now))

    def configs_changed(self, settings: Mapping[str, GroupSettings], now: Now) -> Step:
        return self._checked(super().configs_changed(settings, now))

    def loaded(self, now: Now) -> Step:
        step = super().loaded(now)
        self._is_loaded = True  # what was read has become the live state only now
        return self._checked(step)

    def load_group(self, group_id: str, records: Sequence[Record], now: Now) -> Step:
        return self._checked(super().load_group(group_id, records, now))

    def _checked(self, step: Step) -> Step:
        if self._is_loaded:
            with self._durable.noting():  # an error that was raised here would be one of the core
                check(self)
        return step
