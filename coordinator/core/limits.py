"""The settings of the core: Kafka's group.* and offset* settings, and the limits of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from groupkeeper.coordinator.core.bounds import number
from groupkeeper.coordinator.core.wire_values import INT32_MAX

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""How long a new member may stay parked in a join phase.

Kafka: CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS.
"""

MAX_METADATA_BYTES: Final = 268_435_456

REBALANCE_PROTOCOLS: Final = ("classic", "consumer")
MIGRATION_POLICIES: Final = ("bidirectional", "upgrade", "downgrade", "disabled")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreLimits:
    """The limits of every shard. Settings that Kafka has too have Kafka's names and defaults
    (docs/spec/settings.md#settings)."""

    min_session_timeout_ms: int = number(6_000, least=1, most=INT32_MAX)
    max_session_timeout_ms: int = number(1_800_000, least=1, most=INT32_MAX)
    initial_rebalance_delay_ms: int = number(3_000, least=0, most=INT32_MAX)
    heartbeat_check_interval_ms: int = number(0, least=0)
    """The least time between two passes over expired sessions; 0: each session ends on time.

    A larger value saves wake-ups, but evicts a silent member up to this much later. Kafka has no
    such setting.
    """
    group_max_size: int = number(INT32_MAX, least=1, most=INT32_MAX)
    rebalance_protocols: tuple[str, ...] = REBALANCE_PROTOCOLS
    """The types of groups that are served (Kafka's ``group.coordinator.rebalance.protocols``).
    ``classic`` is always among them.
    """
    consumer_session_timeout_ms: int = number(45_000, least=1, most=INT32_MAX)
    """How long a member of a consumer group may be silent. The coordinator decides this, not the
    client."""
    consumer_min_session_timeout_ms: int = number(45_000, least=1, most=INT32_MAX)
    consumer_max_session_timeout_ms: int = number(60_000, least=1, most=INT32_MAX)
    consumer_heartbeat_interval_ms: int = number(5_000, least=1, most=INT32_MAX)
    consumer_min_heartbeat_interval_ms: int = number(5_000, least=1, most=INT32_MAX)
    consumer_max_heartbeat_interval_ms: int = number(15_000, least=1, most=INT32_MAX)
    consumer_max_size: int = number(INT32_MAX, least=1, most=INT32_MAX)
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The assignors that a member may name. The first is used if no member names one."""
    consumer_migration_policy: str = "bidirectional"
    """Which groups may change their type while they have members. ``upgrade``: classic groups
    become consumer groups. ``downgrade``: consumer groups become classic groups. ``bidirectional``:
    both. ``disabled``: neither.
    """
    consumer_assignment_interval_ms: int = number(1_000, least=0, most=INT32_MAX)
    """The least time between two computations of a group's target assignment (KIP-1263)."""
    consumer_min_assignment_interval_ms: int = number(0, least=0, most=INT32_MAX)
    consumer_max_assignment_interval_ms: int = number(15_000, least=0, most=INT32_MAX)
    consumer_regex_refresh_interval_ms: int = number(600_000, least=10_000, most=INT32_MAX)
    """The interval at which the topics of a group's patterns are found again if no topic was
    created."""
    max_group_patterns: int = number(100, least=1)
    """The largest number of different patterns that the members of one group may have. All patterns
    of a group are resolved together, and stored with their topics. The members of a usual group
    have the same pattern.
    """
    max_groups: int = number(1_000_000, least=1)
    """The largest number of groups of all shards together. One group costs about 2 KB. Groups that
    a load finds are served even above this limit.
    """
    max_metadata_bytes: int = number(MAX_METADATA_BYTES, least=0)
    """The largest amount of metadata of the members of all groups together. The assignments of all
    groups together have the same limit.

    Metadata of a member above 16 KiB may use only half of this limit. Metadata up to 1 KiB is never
    refused because of this limit (``census``).
    """
    offset_metadata_max_bytes: int = number(4_096, least=0)
    """The longest metadata of an offset. Despite the name, Kafka counts UTF-16 code units, and so
    do we."""
    offsets_retention_ms: int = number(7 * 24 * 60 * 60 * 1000, least=1)
    retention_check_interval_ms: int = number(600_000, least=1)
    max_partitions: int = number(100_000, least=0)
    """The largest number of partitions of all topics in static mode, because Metadata lists every
    partition."""
    max_configured_groups: int = number(10_000, least=0)
    """The largest number of groups with their own configs.

    All configs are read at every start, and one answer to ListConfigResources lists all these
    groups. For more groups than this, change the daemon's default instead.
    """
    max_remembered_groups: int = number(0, least=0)
    """The largest number of deleted groups that one shard remembers (docs/design.md#adoption). A
    remembered group is not adopted again from the upstream. If there are more, the oldest is
    forgotten. A group whose id is longer than 128 characters counts as several. 0 except in gateway
    mode.

    One costs about 200 bytes of memory and is read at every start.
    """
    max_group_bytes: int = number(64 * 1024 * 1024, least=1)
    """The largest saved size of one group: its offsets with their metadata, and its members.

    A group is held in memory as a whole and read at every start. 64 MiB are 100,000 partitions with
    500 bytes of metadata each. Only requests that would exceed the limit are refused.
    """
    max_step_bytes: int = number(16 * 1024 * 1024, least=1)
    """The largest number of bytes that the storage accepts in one step. A request that would need
    more is refused before it changes anything.
    """
