"""The topics of gateway mode: their end offsets are those of the upstream, or unknown.

The upstream is the Kafka cluster behind the gateway. The mirror commits our offsets there too.
"""

from __future__ import annotations

from collections.abc import Callable

from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.core.records import OffsetsCommitted


class GatewayTopics(Topics):
    """Topics whose end offsets the upstream reports. A commit does not change a known end
    offset.
    """

    def __init__(self) -> None:
        super().__init__()
        self.when_committed: Callable[[OffsetsCommitted], None] | None = None
        """Called with each durable commit. The mirror sets it."""

    def end_offset(self, topic_id: str, partition: int) -> int:
        """Return the last end that the upstream reported; ``UNKNOWN_END`` if it reported none."""
        return self.observed_end(topic_id, partition)

    def _log_differences(self) -> None:
        """Write nothing: no topic of the upstream is in the configuration, and none should be."""

    def committed(self, record: OffsetsCommitted) -> None:
        """Pass a durable commit on to the mirror."""
        super().committed(record)
        if self.when_committed is not None:
            self.when_committed(record)
