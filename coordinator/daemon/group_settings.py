"""The settings of groups: Kafka's ``group.*`` under Kafka's names."""

from __future__ import annotations

from typing import Literal

from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.daemon.setting_fields import Section, coordinators_setting


class GroupSettings(Section):
    """Kafka's group.* settings under Kafka's names."""

    min_session_timeout_ms: int = coordinators_setting(
        "min_session_timeout_ms",
        description="The shortest session timeout that a member may ask for, in milliseconds. "
        "With a shorter timeout, dead members are found sooner, but there are more heartbeats, "
        "and more members are evicted by mistake.",
    )
    max_session_timeout_ms: int = coordinators_setting(
        "max_session_timeout_ms",
        description="The longest session timeout that a member may ask for, in milliseconds.",
    )
    initial_rebalance_delay_ms: int = coordinators_setting(
        "initial_rebalance_delay_ms",
        default=CoreLimits().initial_rebalance_delay_ms,
        description="Milliseconds for which an empty group waits for more members before its "
        "first generation. So consumers that start together cause one rebalance. 0 is practical "
        "in development.",
    )
    max_size: int = coordinators_setting(
        "group_max_size",
        description="The most members of a classic group. Kafka's default is no limit.",
    )
    max_groups: int = coordinators_setting(
        "max_groups",
        description="The most groups. Any client can create groups, and each costs about 2 KB of "
        "memory: 1,000,000 are 2 GB. Each 512 characters of a group's id count as one more "
        "group. At the limit, a join or commit that would create a group is answered with "
        "COORDINATOR_NOT_AVAILABLE. Existing groups are always served, even if a store has more "
        "of them.",
    )
    rebalance_protocols: tuple[Literal["classic", "consumer"], ...] = coordinators_setting(
        "rebalance_protocols",
        description="The types of groups that are served (Kafka's "
        "group.coordinator.rebalance.protocols). Both by default, as in Kafka: a group is "
        "classic until one of its clients sets group.protocol=consumer. If consumer is not in "
        "the list, such clients get UNSUPPORTED_VERSION.",
    )
    consumer_session_timeout_ms: int = coordinators_setting(
        "consumer_session_timeout_ms",
        description="Milliseconds for which a member of a consumer group may be silent before it "
        "is evicted. A group may have its own value (consumer.session.timeout.ms).",
    )
    consumer_min_session_timeout_ms: int = coordinators_setting(
        "consumer_min_session_timeout_ms",
        description="The least value of consumer_session_timeout_ms, here and in the config of a "
        "group.",
    )
    consumer_max_session_timeout_ms: int = coordinators_setting(
        "consumer_max_session_timeout_ms",
        description="The greatest value of consumer_session_timeout_ms, here and in the config "
        "of a group.",
    )
    consumer_heartbeat_interval_ms: int = coordinators_setting(
        "consumer_heartbeat_interval_ms",
        description="Milliseconds between two heartbeats of a member of a consumer group. The "
        "coordinator sends this value in each answer to a heartbeat. A group may have its own "
        "value (consumer.heartbeat.interval.ms).",
    )
    consumer_min_heartbeat_interval_ms: int = coordinators_setting(
        "consumer_min_heartbeat_interval_ms",
        description="The least value of consumer_heartbeat_interval_ms, here and in the config "
        "of a group.",
    )
    consumer_max_heartbeat_interval_ms: int = coordinators_setting(
        "consumer_max_heartbeat_interval_ms",
        description="The greatest value of consumer_heartbeat_interval_ms, here and in the "
        "config of a group.",
    )
    consumer_max_size: int = coordinators_setting(
        "consumer_max_size",
        description="The most members of a consumer group. Kafka's default is no limit.",
    )
    consumer_assignors: tuple[str, ...] = coordinators_setting(
        "consumer_assignors",
        description="The assignors that members of consumer groups may choose. If no member "
        "chooses one, the first is used.",
    )
    consumer_migration_policy: Literal["bidirectional", "upgrade", "downgrade", "disabled"] = (
        coordinators_setting(
            "consumer_migration_policy",
            description="Whether a group may change its type while it has members. upgrade: a "
            "classic group becomes a consumer group when a member of the consumer protocol joins "
            "it. downgrade: a consumer group becomes a classic group when only classic members "
            "are left. bidirectional: both. disabled: neither.",
        )
    )
    consumer_assignment_interval_ms: int = coordinators_setting(
        "consumer_assignment_interval_ms",
        description="The least number of milliseconds between two computations of the assignment "
        "of a consumer group. So many joins cause few computations. 0: each change causes one. A "
        "group may have its own value (consumer.assignment.interval.ms).",
    )
    consumer_min_assignment_interval_ms: int = coordinators_setting(
        "consumer_min_assignment_interval_ms",
        description="The least value of consumer_assignment_interval_ms, here and in the config "
        "of a group.",
    )
    consumer_max_assignment_interval_ms: int = coordinators_setting(
        "consumer_max_assignment_interval_ms",
        description="The greatest value of consumer_assignment_interval_ms, here and in the "
        "config of a group.",
    )
    consumer_regex_refresh_interval_ms: int = coordinators_setting(
        "consumer_regex_refresh_interval_ms",
        description="Milliseconds after which groupkeeper looks again which topics match the "
        "patterns of a consumer group, even if no topic was created.",
    )
    consumer_assignment_timeout_ms: int = coordinators_setting(
        "consumer_assignment_timeout_ms",
        description="A second process computes the assignments of large consumer groups, and "
        "those of installed assignors. It may take this many milliseconds for one group. After "
        "that it is killed, the members keep their partitions, and the assignment is computed "
        "again after consumer_assignment_interval_ms.",
    )
    max_patterns: int = coordinators_setting(
        "max_patterns",
        description="The most different patterns (regular expressions) of topics that the "
        "members of all consumer groups together may subscribe to. A member with one more is "
        "refused with INVALID_REGULAR_EXPRESSION. Each new topic is matched with each pattern. "
        "Patterns of former members count for up to 20 minutes.",
    )
    max_group_patterns: int = coordinators_setting(
        "max_group_patterns",
        description="The most different patterns that the members of one consumer group may "
        "subscribe to. Usually all its members have the same pattern. A member with one more is "
        "refused with INVALID_REGULAR_EXPRESSION.",
    )
