"""The topics of gateway mode: their end offsets are those of the upstream, or unknown.

The upstream is the Kafka cluster behind the gateway. The mirror commits our offsets there too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from groupkeeper.coordinator.cluster.ends import Ends, PartitionKey
from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.core.records import OffsetsCommitted

UNKNOWN_END: Final = -1
"""The end of a partition before the upstream has reported it."""


class GatewayEnds(Ends):
    """The ends that the upstream has reported. A commit does not change them."""

    def __init__(self) -> None:
        super().__init__()
        self._observed: dict[str, dict[int, int]] = {}
        self.when_committed: Callable[[OffsetsCommitted], None] | None = None
        """Called with each durable commit. The mirror sets it."""

    def of(self, topic_id: str, partition: int) -> int:
        """Return the last end that the upstream reported; ``UNKNOWN_END`` if it reported none."""
        return self._observed.get(topic_id, {}).get(partition, UNKNOWN_END)

    def observe(self, found: Mapping[PartitionKey, int]) -> None:
        """Set the ends that the upstream has reported. An end may be lower than before if the
        upstream has truncated the partition.
        """
        for (topic_id, partition), end in found.items():
            if self.knows(topic_id):
                self._observed.setdefault(topic_id, {})[partition] = end

    def forget(self, topic_id: str) -> None:
        super().forget(topic_id)
        self._observed.pop(topic_id, None)

    def committed(self, record: OffsetsCommitted) -> None:
        """Pass a durable commit on to the mirror."""
        super().committed(record)
        if self.when_committed is not None:
            self.when_committed(record)


class GatewayTopics(Topics):
    """The topics of a gateway: those that the upstream has, with the ends that it reports."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = self.gateway_ends = GatewayEnds()

    def _log_differences(self) -> None:
        """Write nothing: no topic of the upstream is in the configuration, and none should be."""
