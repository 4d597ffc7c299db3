"""The settings of groups: Kafka's ``group.*`` under Kafka's names."""

from __future__ import annotations

from typing import Literal

from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.daemon.setting_fields import Section, coordinators_setting


class GroupSettings(Section):
    """Kafka's group.* settings under Kafka's names."""

    min_session_timeout_ms: int = coordinators_setting(
        "min_session_timeout_ms",
        description="The shortest session timeout that a member may ask for, in milliseconds. A "
        "shorter one finds dead members sooner, and costs more heartbeats and false alarms.",
    )
    max_session_timeout_ms: int = coordinators_setting(
        "max_session_timeout_ms",
        description="The longest session timeout that a member may ask for, in milliseconds.",
    )
    initial_rebalance_delay_ms: int = coordinators_setting(
        "initial_rebalance_delay_ms",
        default=CoreLimits().initial_rebalance_delay_ms,
        description="Milliseconds that an empty group waits for more members before its first "
        "generation, so that consumers that start together are assigned once. 0 in development.",
    )
    max_size: int = coordinators_setting(
        "group_max_size",
        description="Members that a group may have. Kafka's default is no limit.",
    )
    max_groups: int = coordinators_setting(
        "max_groups",
        description="Groups that may exist. Any client can create new ones, and each costs about "
        "2 KB of memory: 1,000,000 are 2 GB. Each 512 characters of its id count as one group "
        "more. At the limit, a join or commit that would create a group is answered with "
        "COORDINATOR_NOT_AVAILABLE. Existing groups are always served, even if a store has more "
        "of them.",
    )
    rebalance_protocols: tuple[Literal["classic", "consumer"], ...] = coordinators_setting(
        "rebalance_protocols",
        description="The types of groups that are served (Kafka's "
        "group.coordinator.rebalance.protocols). Both by default, as in Kafka: a group stays "
        "classic until one of its clients sets group.protocol=consumer. Without consumer, such "
        "clients get UNSUPPORTED_VERSION.",
    )
    consumer_session_timeout_ms: int = coordinators_setting(
        "consumer_session_timeout_ms",
        description="Milliseconds that a member of a consumer group may be silent before it is "
        "evicted. A group may have its own value (consumer.session.timeout.ms).",
    )
    consumer_min_session_timeout_ms: int = coordinators_setting(
        "consumer_min_session_timeout_ms",
        description="The least value of consumer_session_timeout_ms, also for single groups.",
    )
    consumer_max_session_timeout_ms: int = coordinators_setting(
        "consumer_max_session_timeout_ms",
        description="The greatest value of consumer_session_timeout_ms, also for single groups.",
    )
    consumer_heartbeat_interval_ms: int = coordinators_setting(
        "consumer_heartbeat_interval_ms",
        description="Milliseconds between two heartbeats of a member of a consumer group. Its "
        "clients learn it with each answer. A group may have its own value "
        "(consumer.heartbeat.interval.ms).",
    )
    consumer_min_heartbeat_interval_ms: int = coordinators_setting(
        "consumer_min_heartbeat_interval_ms",
        description="The least value of consumer_heartbeat_interval_ms, also for single groups.",
    )
    consumer_max_heartbeat_interval_ms: int = coordinators_setting(
        "consumer_max_heartbeat_interval_ms",
        description="The greatest value of consumer_heartbeat_interval_ms, also for single groups.",
    )
    consumer_max_size: int = coordinators_setting(
        "consumer_max_size",
        description="Members that a consumer group may have. Kafka's default is no limit.",
    )
    consumer_assignors: tuple[str, ...] = coordinators_setting(
        "consumer_assignors",
        description="The assignors that members of consumer groups may name. The first is used if "
        "no member names one.",
    )
    consumer_migration_policy: Literal["bidirectional", "upgrade", "downgrade", "disabled"] = (
        coordinators_setting(
            "consumer_migration_policy",
            description="Whether a group with members changes its type. upgrade: a classic group "
            "becomes a consumer group when a member of the consumer protocol joins it. downgrade: "
            "a consumer group becomes a classic group when only classic members are left. "
            "bidirectional: both. disabled: neither.",
        )
    )
    consumer_assignment_interval_ms: int = coordinators_setting(
        "consumer_assignment_interval_ms",
        description="The least number of milliseconds between two computations of the assignment "
        "of a consumer group, so that many joins cause few computations. 0: each change computes "
        "it. A group may have its own value (consumer.assignment.interval.ms).",
    )
    consumer_min_assignment_interval_ms: int = coordinators_setting(
        "consumer_min_assignment_interval_ms",
        description="The least value of consumer_assignment_interval_ms, also for single groups.",
    )
    consumer_max_assignment_interval_ms: int = coordinators_setting(
        "consumer_max_assignment_interval_ms",
        description="The greatest value of consumer_assignment_interval_ms, also for single "
        "groups.",
    )
    consumer_regex_refresh_interval_ms: int = coordinators_setting(
        "consumer_regex_refresh_interval_ms",
        description="Milliseconds after which the patterns of a consumer group are resolved again "
        "even if no topic was created.",
    )
    consumer_assignment_timeout_ms: int = coordinators_setting(
        "consumer_assignment_timeout_ms",
        description="Milliseconds that the other process may take for the assignment of one "
        "consumer group. It computes the assignments of large groups, and those of installed "
        "assignors. After that time it is killed, the members keep their partitions, and the "
        "assignment is computed again after consumer_assignment_interval_ms.",
    )
    max_patterns: int = coordinators_setting(
        "max_patterns",
        description="Different patterns (regular expressions) of topics that members of all "
        "consumer groups may subscribe to. A member with one more is refused with "
        "INVALID_REGULAR_EXPRESSION. A new topic is matched with each of them.",
    )
    max_group_patterns: int = coordinators_setting(
        "max_group_patterns",
        description="Different patterns that the members of one consumer group may subscribe to. "
        "Usually all members have the same one. A member with one more is refused with "
        "INVALID_REGULAR_EXPRESSION.",
    )
