"""A shard of a world, driven by hand."""

from __future__ import annotations

from typing import Any

from tests.helpers.core.shard_driver import ShardDriver
from tests.simulation.checked_shard import CheckedShard
from tests.simulation.history import Durable


class WorldShardDriver(ShardDriver):
    """Drives a shard that checks itself as in a world. Failures are in ``durable.problems``."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        self.durable = Durable()
        self.shard = CheckedShard(0, self.limits, self.image, self.durable)
        self._take(self.shard.loaded(self.now))
