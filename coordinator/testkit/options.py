"""The options that a test may choose for its server, with their bounds.

Most options are settings of the daemon, with defaults for short tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from groupkeeper.coordinator.core.bounds import bounds_of, number
from groupkeeper.coordinator.core.wire_values import INT32_MAX, text, whole_number
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The options of a test server. Most have the name of the daemon's setting."""

    topics: Mapping[str, int] = field(default_factory=dict)
    """Name -> number of partitions."""
    auto_create_topics: bool = False
    """Metadata requests create missing topics, with ``num_partitions`` partitions."""
    num_partitions: int = number(1, least=1, most=INT32_MAX)
    initial_rebalance_delay_ms: int = 0
    """0: the first rebalance does not wait for more members. Kafka's default is 3000."""
    min_session_timeout_ms: int = number(1_000, least=2)
    """Kafka's default is 6000. Ours is short, so that a test of an eviction does not wait long. The
    least value is 2, because ``append_timeout_ms`` must be lower than this and is at least 1.
    """
    max_session_timeout_ms: int = 1_800_000
    consumer_session_timeout_ms: int = number(45_000, least=2, most=INT32_MAX)
    """The session timeout of members of consumer groups (KIP-848), which do not choose their own.
    The least value is 2, for the reason given at ``min_session_timeout_ms``.
    """
    consumer_heartbeat_interval_ms: int = number(100, least=1, most=INT32_MAX)
    """The interval at which members of consumer groups heartbeat. Kafka's default is 5000. Ours is
    short, because only a heartbeat can assign or revoke partitions.
    """
    group_max_size: int = 2_147_483_647
    node_id: int = number(1, least=0, most=INT32_MAX)
    cluster_id: str = "groupkeeper"
    host: str = "127.0.0.1"
    port: int = number(0, least=0, most=65_535)
    """0: a free port."""

    def __post_init__(self) -> None:
        """Check the options. Raises TypeError or ValueError, whose message names the option."""
        for name, (least, most) in bounds_of(self).items():
            value = whole_number(name, getattr(self, name), least=least, most=most)
            object.__setattr__(self, name, value)
        for name in ("cluster_id", "host"):
            if not text(name, getattr(self, name)):
                raise ValueError(f"{name} must not be empty")
        if not isinstance(self.auto_create_topics, bool):
            raise TypeError(f"auto_create_topics must be a bool, not {self.auto_create_topics!r}")
        if not isinstance(self.topics, Mapping):
            raise TypeError(f"topics must map names to numbers of partitions, not {self.topics!r}")
        self.coordinator_config()

    def coordinator_config(self) -> CoordinatorConfig:
        """Return the coordinator's config for these options."""
        return CoordinatorConfig(
            min_session_timeout_ms=self.min_session_timeout_ms,
            max_session_timeout_ms=self.max_session_timeout_ms,
            initial_rebalance_delay_ms=self.initial_rebalance_delay_ms,
            group_max_size=self.group_max_size,
            consumer_session_timeout_ms=self.consumer_session_timeout_ms,
            consumer_min_session_timeout_ms=self.consumer_session_timeout_ms,
            consumer_max_session_timeout_ms=max(60_000, self.consumer_session_timeout_ms),
            consumer_heartbeat_interval_ms=self.consumer_heartbeat_interval_ms,
            consumer_min_heartbeat_interval_ms=1,
            consumer_max_heartbeat_interval_ms=max(15_000, self.consumer_heartbeat_interval_ms),
            consumer_assignment_interval_ms=0,
            cluster_id=self.cluster_id,
            # must be below the shortest session timeout; memory never needs that long
            append_timeout_ms=min(
                5_000, self.min_session_timeout_ms - 1, self.consumer_session_timeout_ms - 1
            ),
            # no test should wait for a back-off after the store works again
            retry_min_ms=10,
            retry_max_ms=50,
        )
