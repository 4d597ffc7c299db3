"""The options of a coordinator for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from groupkeeper.coordinator.core.wire_numbers import INT32_MAX
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.host_values import text, whole_number

_WHOLE: Final[dict[str, tuple[int, int]]] = {
    "num_partitions": (1, INT32_MAX),
    "min_session_timeout_ms": (2, INT32_MAX),  # above append_timeout_ms, which is 1 at least
    "node_id": (0, INT32_MAX),
    "port": (0, 65_535),
}
"""The options that the coordinator's config lacks or limits differently, with their least and
greatest values.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a test server differs from Kafka's defaults. Each option has the name of the setting."""

    topics: Mapping[str, int] = field(default_factory=dict)
    """Name -> partitions."""
    auto_create_topics: bool = False
    """Metadata requests create missing topics, with ``num_partitions`` partitions."""
    num_partitions: int = 1
    initial_rebalance_delay_ms: int = 0
    """0: the first rebalance does not wait for more members. Kafka's default is 3000."""
    min_session_timeout_ms: int = 1_000
    """Kafka's default is 6000. Short, so that a test of an eviction does not wait long."""
    max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2_147_483_647
    node_id: int = 1
    cluster_id: str = "groupkeeper"
    host: str = "127.0.0.1"
    port: int = 0
    """0: a free port."""

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError with the option's name, as the test passed it."""
        for name, (least, most) in _WHOLE.items():
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
            cluster_id=self.cluster_id,
            # must be below the shortest session timeout; memory never needs that long
            append_timeout_ms=min(5_000, self.min_session_timeout_ms - 1),
            # no test should wait for the back-off of a store that works again
            retry_min_ms=10,
            retry_max_ms=50,
        )
