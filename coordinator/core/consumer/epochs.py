"""The epochs of a consumer group.

See docs/spec/consumer-groups.md#model and #heartbeat, steps 7 and 8. Only ``ConsumerGroup`` changes
them, when it applies a record.
"""

from __future__ import annotations

from groupkeeper.coordinator.core.consumer_records import FIRST_EPOCH


class Epochs:
    """The epoch of the group, and the epoch for which its target was computed."""

    __slots__ = ("computed_ms", "group", "metadata_hash", "target")

    def __init__(
        self,
        group: int = FIRST_EPOCH,
        metadata_hash: int = 0,
        target: int = FIRST_EPOCH,
        computed_ms: int = -1,
    ) -> None:
        assert target <= group, "a target is computed for an epoch that the group has"
        self.group = group
        self.metadata_hash = metadata_hash
        """The hash of the subscribed topics at the time when the group got its epoch."""
        self.target = target
        self.computed_ms = computed_ms
        """When the target was computed (wall clock); -1 if it never was."""

    def needs_target(self) -> bool:
        """Return True if the target is of an older epoch than the group."""
        return self.target < self.group

    def may_compute(self, wall_ms: int, interval_ms: int) -> bool:
        """Return True if the last computation was at least ``interval_ms`` ago. Also return True if
        the clock was set back since then.
        """
        return not (self.computed_ms >= 0 and 0 <= wall_ms - self.computed_ms < interval_ms)
