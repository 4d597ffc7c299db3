"""The settings of both sides of a comparison, from one table, and the lengths that cases use.

Kafka's minimum timeouts are lowered on both sides alike. There are two pairs of servers, because
some settings of a broker cannot be changed while it runs: ``PLAIN`` for nearly everything, and
``SMALL`` for what only an initial delay, a size limit and a frequent expiry pass show.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.conformance.kafka.asked import ASKED

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC = "orders"
PARTITIONS = 12

MIN_SESSION_MS = 400
SHORT_MS = 1_000
"""A timeout that a case lets pass."""
LONG_MS = 900_000
"""A timeout that no case waits for."""
NEVER_MS = 86_400_000
"""A pass that no run lives to see: each side would come to a group in another moment."""
INITIAL_DELAY_MS = 1_000
MAX_SIZE = 2
MIN_HEARTBEAT_MS = 100
ASSIGNMENT_INTERVAL_MS = 1_000
CHECK_INTERVAL_MS = 1_000


class Setting(NamedTuple):
    """One setting under Kafka's name and under ours, with its value in each pair of servers."""

    kafka: str
    ours: str
    plain: int | str
    small: int | str


TABLE = (
    Setting(
        "group.min.session.timeout.ms",
        "group.min_session_timeout_ms",
        MIN_SESSION_MS,
        MIN_SESSION_MS,
    ),
    Setting(
        "group.initial.rebalance.delay.ms",
        "group.initial_rebalance_delay_ms",
        0,
        INITIAL_DELAY_MS,
    ),
    Setting("group.max.size", "group.max_size", 2**31 - 1, MAX_SIZE),
    Setting(
        "offsets.retention.check.interval.ms",
        "offsets.retention_check_interval_ms",
        NEVER_MS,
        CHECK_INTERVAL_MS,
    ),
    Setting(
        "group.consumer.min.session.timeout.ms",
        "group.consumer_min_session_timeout_ms",
        MIN_SESSION_MS,
        MIN_SESSION_MS,
    ),
    Setting(
        "group.consumer.max.session.timeout.ms",
        "group.consumer_max_session_timeout_ms",
        LONG_MS,
        LONG_MS,
    ),
    Setting(
        "group.consumer.session.timeout.ms",
        "group.consumer_session_timeout_ms",
        LONG_MS,
        LONG_MS,
    ),
    Setting(
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer_min_heartbeat_interval_ms",
        MIN_HEARTBEAT_MS,
        MIN_HEARTBEAT_MS,
    ),
    Setting(
        "group.consumer.assignment.interval.ms",
        "group.consumer_assignment_interval_ms",
        0,
        ASSIGNMENT_INTERVAL_MS,
    ),
    Setting("group.consumer.max.size", "group.consumer_max_size", 2**31 - 1, MAX_SIZE),
    Setting(
        "group.consumer.migration.policy",
        "group.consumer_migration_policy",
        ASKED.policy or "bidirectional",
        ASKED.policy or "upgrade",
    ),
    Setting("offset.metadata.max.bytes", "offsets.metadata_max_bytes", 4_096, 4_096),
    Setting("offsets.topic.num.partitions", "offsets.topic_num_partitions", 50, 50),
    Setting("node.id", "kafka.node_id", 1, 1),
    Setting("auto.create.topics.enable", "static.auto_create_topics", False, True),
)


def of_kafka(*, small: bool) -> dict[str, int | str]:
    """What server.properties holds of the table."""
    return {row.kafka: row.small if small else row.plain for row in TABLE}


def of_ours(*, small: bool) -> dict[str, int | str]:
    """What the daemon's settings hold of the table."""
    return {row.ours: row.small if small else row.plain for row in TABLE}
