"""The settings of a coordinator, in a process of its own or in a host's process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.wire_numbers import INT32_MAX
from groupkeeper.storage.base import StorageLimits
from groupkeeper.storage.host_values import text, whole_number

LEAST: Final = {
    "min_session_timeout_ms": 1,
    "max_session_timeout_ms": 1,
    "initial_rebalance_delay_ms": 0,
    "heartbeat_check_interval_ms": 0,
    "group_max_size": 1,
    "max_groups": 1,
    "max_metadata_bytes": 0,
    "offset_metadata_max_bytes": 0,
    "offsets_retention_ms": 1,
    "retention_check_interval_ms": 1,
    "max_partitions": 0,
    "max_configured_groups": 0,
    "max_group_bytes": 1,
    "max_step_bytes": 1,
    "default_session_timeout_ms": 1,
    "default_rebalance_timeout_ms": 1,
    "shards": 1,
    "append_timeout_ms": 1,
    "drain_timeout_ms": 0,
    "events_delay_ms": 0,
    "merge_window_ms": 0,
    "max_merged_members": 0,
    "max_riding_events": 0,
    "max_gathered_requests": 1,
    "max_gathered_bytes": 1,
    "load_slice_ms": 0,
    "retry_min_ms": 1,
    "retry_max_ms": 1,
    "fold_idle_ms": 0,
    "end_offset_interval_ms": 0,
    "renew_interval_ms": 1,
}
"""The least value of each number. The daemon's settings and the test server's use it."""

MOST: Final = {
    "min_session_timeout_ms": INT32_MAX,
    "max_session_timeout_ms": INT32_MAX,
    "initial_rebalance_delay_ms": INT32_MAX,
    "group_max_size": INT32_MAX,
    "shards": 10_000,
}
"""The greatest value of those numbers that the wire format or a store's partitions limit."""

_MAY_BE_BROKEN: Final = frozenset({"load_slice_ms"})

DEFAULT_SESSION_TIMEOUT_MS: Final = 45_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig(CoreLimits):
    """The settings of a GroupCoordinator, every limit with its reason.

    One flat class, together with the limits of the core (``CoreLimits``: session timeouts,
    retention...). A host sets the fields that matter to it and leaves the others.
    """

    initial_rebalance_delay_ms: int = 0
    """How long the first join of an empty group waits for others. Kafka's 3 s (and the daemon's)
    are for consumers that a deployment starts together. In one process nobody has to wait.
    """
    default_session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    """For a JoinGroupRequest without a session timeout. Kafka's consumers send this value by
    default. Any other value must lie within the two bounds. The default itself is moved into them.
    """
    default_rebalance_timeout_ms: int = 60_000
    """For a JoinGroupRequest without a rebalance timeout. Kafka Connect's workers send this by
    default.
    """
    cluster_id: str = "groupkeeper"
    shards: int = 50
    """Kafka's own number of ``__consumer_offsets`` partitions. Fixed when a store is created."""
    owner: str = "groupkeeper"
    """Our name in the lease store. Unique among processes that share the store."""
    append_timeout_ms: int = 5_000
    """Kafka's ``offsets.commit.timeout.ms``. Must be below the least session timeout, or a slow
    append would outlast a session (docs/design.md#durable-first).
    """
    drain_timeout_ms: int = 10_000
    """How long ``stop`` may take: to flush, to fold and to release the store."""
    events_delay_ms: int = 50
    """How long an event without a record waits for an append."""
    merge_window_ms: int = 10_000
    """Refusals of one member within this time become one event with a count."""
    max_merged_members: int = 10_000
    """How many members may have merged refusals at the same time. If there are more, the oldest
    window ends early.
    """
    max_riding_events: int = 20_000
    """How many events without records may wait for an append. At some 500 bytes each that is 10 MB.
    An event with long names counts as several.
    """
    max_gathered_requests: int = 8_192
    """How many requests may gather for one append. An append that takes 100 ms at 50,000 commits a
    second gathers 5,000. If more gather, the storage cannot keep up, and clients are asked to
    retry.
    """
    max_gathered_bytes: int = 8 * 1024 * 1024
    """The estimated size of the records that may gather. One more step on top is the most that a
    storage gets in one append. All clients wait while it is encoded: 24 MiB of characters that JSON
    escapes take 50 ms.
    """
    load_slice_ms: float = 5.0
    """How long a load may hold the loop (docs/design.md#loading)."""
    retry_min_ms: int = 100
    retry_max_ms: int = 5_000
    """The pause between attempts to load doubles up to this. It is short, since no shard answers
    then.
    """
    fold_idle_ms: int = 1_000
    """A lane without writes for this long is folded by appends of its own."""
    end_offset_interval_ms: int = 60_000
    """How often the ends of changed partitions are written to the event log. 0: never."""
    renew_interval_ms: int = 3_000
    """How often leases are renewed, if they expire in the store."""

    def __post_init__(self) -> None:
        """Raise ValueError for a value out of bounds, with the field and its bounds."""
        for name, least in LEAST.items():
            if name not in _MAY_BE_BROKEN:
                value = whole_number(name, getattr(self, name), least=least, most=MOST.get(name))
                object.__setattr__(self, name, value)  # numpy's numbers are accepted
            elif not least <= _real(name, getattr(self, name)):
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")
        for name in ("cluster_id", "owner"):
            text(name, getattr(self, name))
        wrong = timeouts_error(
            ("append_timeout_ms", self.append_timeout_ms),
            ("min_session_timeout_ms", self.min_session_timeout_ms),
            ("max_session_timeout_ms", self.max_session_timeout_ms),
        )
        if wrong is not None:
            raise ValueError(wrong)
        named_ms = self.default_session_timeout_ms
        if named_ms != DEFAULT_SESSION_TIMEOUT_MS and not (
            self.min_session_timeout_ms <= named_ms <= self.max_session_timeout_ms
        ):
            raise ValueError(
                f"default_session_timeout_ms ({named_ms}) is not within min_session_timeout_ms "
                f"({self.min_session_timeout_ms}) and max_session_timeout_ms "
                f"({self.max_session_timeout_ms})"
            )


DEFAULTS: Final[Mapping[str, Any]] = {
    field.name: field.default for field in dataclasses.fields(CoordinatorConfig)
}


def timeouts_error(
    append: tuple[str, int], least: tuple[str, int], most: tuple[str, int]
) -> str | None:
    """Return why the timeouts of appends and sessions do not fit together, or None if they fit.
    Each timeout is named as its caller names it.
    """
    if append[1] >= least[1]:
        return (
            f"{append[0]} ({append[1]}) must be below {least[0]} ({least[1]}), "
            "or a slow append would outlast a session"
        )
    if least[1] > most[1]:
        return f"{least[0]} ({least[1]}) is above {most[0]} ({most[1]})"
    return None


def _real(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {value!r}")
    return value


def within_limits(limits: CoreLimits, storage: StorageLimits) -> CoreLimits:
    """Return the limits, lowered to the limits of the storage."""
    group = limits.max_group_bytes
    if storage.max_group_bytes is not None:
        group = min(group, storage.max_group_bytes)
    step = min(limits.max_step_bytes, storage.max_step_bytes)
    return dataclasses.replace(limits, max_group_bytes=group, max_step_bytes=step)
