"""The settings of a coordinator, in its own process or in a host's process."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

from groupkeeper.coordinator.core.bounds import Bounds, bounds_of, number
from groupkeeper.coordinator.core.limits import (
    MIGRATION_POLICIES,
    REBALANCE_PROTOCOLS,
    CoreLimits,
)
from groupkeeper.coordinator.core.wire_values import text, whole_number
from groupkeeper.storage.base import StorageLimits

DEFAULT_SESSION_TIMEOUT_MS: Final = 45_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig(CoreLimits):
    """The settings of a GroupCoordinator. Every limit has its reason.

    This is one flat class that includes the limits of the core (``CoreLimits``: session timeouts,
    retention...). A host program sets the fields that matter to it, and leaves the others
    unchanged.
    """

    initial_rebalance_delay_ms: int = number(
        0, *bounds_of(CoreLimits)["initial_rebalance_delay_ms"]
    )
    """How long the first join of an empty group waits for others. Kafka and the daemon wait 3 s,
    for consumers that a deployment starts together. Members within one process need not wait."""
    default_session_timeout_ms: int = number(DEFAULT_SESSION_TIMEOUT_MS, least=1)
    """The session timeout for a JoinGroupRequest without one. Kafka's consumers send this value by
    default. If the default of 45,000 ms is not within ``min_session_timeout_ms`` and
    ``max_session_timeout_ms``, the nearer of these is used. Any other value that is not within them
    raises ValueError."""
    default_rebalance_timeout_ms: int = number(60_000, least=1)
    """The rebalance timeout for a JoinGroupRequest without one. Kafka Connect's workers send this
    value by default."""
    cluster_id: str = "groupkeeper"
    shards: int = number(50, least=1, most=10_000)
    """The number of shards of groups. The default is Kafka's number of ``__consumer_offsets``
    partitions. The number is fixed when a store is created."""
    owner: str = "groupkeeper"
    """The name of this process in leases. It must be unique among the processes that share the
    store."""
    append_timeout_ms: int = number(5_000, least=1)
    """The time limit of an append (Kafka's ``offsets.commit.timeout.ms``). It must be below the
    least session timeout. Otherwise a session could end during a slow append
    (docs/design.md#durable-first)."""
    drain_timeout_ms: int = number(10_000, least=0)
    """How long ``stop`` may take to write what waits, and to release the store."""
    events_delay_ms: int = number(50, least=0)
    """How long an event without a record may wait for an append."""
    merge_window_ms: int = number(10_000, least=0)
    """After the first refusal of a member, repeated refusals within this time become one event with
    a count."""
    max_merged_members: int = number(10_000, least=0)
    """For how many members repeated refusals may be counted at the same time. If there are more,
    the oldest count ends early, and its event is written."""
    max_riding_events: int = number(20_000, least=0)
    """The largest number of events that may wait for an append of other records. They come from
    requests and timers that changed nothing in the store. At about 500 bytes an event, the limit is
    about 10 MB. An event with long names counts as several.
    """
    max_gathered_requests: int = number(8_192, least=1)
    """The largest number of requests that may wait for one append. With 50,000 commits a second,
    5,000 wait for an append of 100 ms. If more wait, the storage is too slow, and further requests
    get errors that clients retry."""
    max_gathered_bytes: int = number(8 * 1024 * 1024, least=1)
    """The estimated size of the records that may gather for one append. The largest append has this
    size plus the records of one more request. All clients wait while an append is encoded: 24 MiB
    of characters that JSON escapes take 50 ms."""
    load_slice_ms: float = number(5.0, least=0)
    """How long a load may block the loop (docs/design.md#loading)."""
    retry_min_ms: int = number(100, least=1)
    retry_max_ms: int = number(5_000, least=1)
    """The longest pause between two attempts to load. The pause doubles up to this value. It is
    short, because no shard answers during the pause."""
    consumer_assignment_timeout_ms: int = number(10_000, least=1)
    """The time limit for computing the assignment of one consumer group, in another process. The
    time begins when the earlier computations have ended. 10,000 members in 20 different
    subscriptions of 1,000 topics take some seconds. During this time the members keep their
    partitions."""
    max_waiting_work: int = number(1_000, least=1)
    """The largest number of computations of assignments that may wait. The same number of groups
    may wait for the topics of their patterns. Each group waits for at most one computation. A group
    beyond the limit keeps its assignment, and asks again later."""
    max_patterns: int = number(1_000, least=1)
    """How many different patterns the members of all groups together may have. A pattern may match
    every topic, and each new topic is compared with all patterns. One comparison takes up to 44 us.
    Patterns of stored groups are always served. A pattern that no group has used for 20 minutes
    does not count."""
    fold_idle_ms: int = number(1_000, least=0)
    """If nothing was written to the store for this long, the present state of groups is written (a
    fold). On a shared store, this is done four times a second while no append is in flight."""
    end_offset_interval_ms: int = number(60_000, least=0)
    """The interval at which the ends of changed partitions are written to the event log. 0: never.
    """
    renew_interval_ms: int = number(3_000, least=1)
    """The interval at which leases are checked in a store that belongs to one process. In a shared
    store, they are checked four times a second."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is out of bounds, or if two values contradict each other."""
        for name, bounds in _BOUNDS.items():
            value = _checked(name, getattr(self, name), bounds)
            object.__setattr__(self, name, value)  # numpy's numbers are accepted
        for name in ("cluster_id", "owner"):
            text(name, getattr(self, name))
        wrong = timeouts_error(
            ("append_timeout_ms", self.append_timeout_ms),
            ("min_session_timeout_ms", self.min_session_timeout_ms),
            ("max_session_timeout_ms", self.max_session_timeout_ms),
        ) or consumer_settings_error(self, append=("append_timeout_ms", self.append_timeout_ms))
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


_BOUNDS: Final = bounds_of(CoordinatorConfig)
_MAY_BE_FRACTIONS: Final = frozenset({"load_slice_ms"})


def timeouts_error(
    append: tuple[str, int], least: tuple[str, int], most: tuple[str, int]
) -> str | None:
    """Return the reason why the timeouts of appends and sessions contradict each other; None if
    they do not.

    Each argument is a pair: the name of a timeout, for the message, and its value in milliseconds.
    """
    if append[1] >= least[1]:
        return (
            f"{append[0]} ({append[1]}) must be below {least[0]} ({least[1]}), "
            "or a slow append would outlast a session"
        )
    if least[1] > most[1]:
        return f"{least[0]} ({least[1]}) is above {most[0]} ({most[1]})"
    return None


def consumer_settings_error(
    settings: Any, append: tuple[str, int], section: str = ""
) -> str | None:
    """Return the reason why the settings of consumer groups contradict each other; None if they do
    not.

    ``settings`` has them as attributes, named as in ``CoordinatorConfig``. ``append`` is the name
    and the value of the timeout of appends. In the message, ``section`` is written before every
    other name.
    """

    def named(name: str) -> tuple[str, int]:
        return f"{section}consumer_{name}", getattr(settings, f"consumer_{name}")

    for name in ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms"):
        least, own, most = named(f"min_{name}"), named(name), named(f"max_{name}")
        if not least[1] <= own[1] <= most[1]:
            return (
                f"{own[0]} ({own[1]}) is not within {least[0]} ({least[1]}) "
                f"and {most[0]} ({most[1]})"
            )
    session, heartbeat = named("session_timeout_ms"), named("heartbeat_interval_ms")
    if heartbeat[1] >= session[1]:
        return (
            f"{heartbeat[0]} ({heartbeat[1]}) must be below {session[0]} ({session[1]}), "
            "or members would be evicted between two heartbeats"
        )
    return timeouts_error(
        append, named("min_session_timeout_ms"), named("max_session_timeout_ms")
    ) or _choices_error(settings, section)


def _choices_error(settings: Any, section: str) -> str | None:
    protocols: tuple[str, ...] = settings.rebalance_protocols
    assignors: tuple[str, ...] = settings.consumer_assignors
    if "classic" not in protocols or not set(protocols) <= set(REBALANCE_PROTOCOLS):
        return f"{section}rebalance_protocols must list classic, and may list consumer"
    if not assignors or "" in assignors or len(set(assignors)) < len(assignors):
        return f"{section}consumer_assignors must list at least one name, and each name once"
    if settings.consumer_migration_policy not in MIGRATION_POLICIES:
        return f"{section}consumer_migration_policy must be one of {', '.join(MIGRATION_POLICIES)}"
    return None


def _checked(name: str, value: object, bounds: Bounds) -> float:
    if name not in _MAY_BE_FRACTIONS:
        return whole_number(name, value, least=bounds.least, most=bounds.most)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {value!r}")
    if not value >= bounds.least:  # also refuses NaN
        raise ValueError(f"{name} must be at least {bounds.least}, not {value}")
    return value


def within_limits(limits: CoreLimits, storage: StorageLimits) -> CoreLimits:
    """Return the limits, lowered to the limits of the storage."""
    group = limits.max_group_bytes
    if storage.max_group_bytes is not None:
        group = min(group, storage.max_group_bytes)
    step = min(limits.max_step_bytes, storage.max_step_bytes)
    return dataclasses.replace(limits, max_group_bytes=group, max_step_bytes=step)
