"""What may differ in whole arrays: which elements there are, and what each may differ in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Changed = Mapping[str, tuple[Any, Any]]
"""Field of an element: Kafka's value and ours."""

NOT_SERVED = frozenset(
    {
        *(17, 36),  # SASL
        *(21, 23, 34, 35, 43, 45, 46),  # DeleteRecords and other APIs of logs and replicas
        *(22, 24, 25, 26, 27, 28, 61, 65, 66),  # transactions
        *(29, 30, 31, 38, 39, 40, 41, 48, 49, 50, 51),  # ACLs, tokens, quotas, users
        *(33, 55, 57, 64, 80, 81),  # AlterConfigs; quorum, features, brokers
        75,  # DescribeTopicPartitions
        *(76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92),  # share groups
        *(88, 89),  # streams groups
    }
)
"""The keys that Kafka 4.3.1 lists in ApiVersions and we do not; every other one we do."""

FEATURES = frozenset({"group.version"})
"""The features of Kafka's that we have."""

TOPIC_CONFIGS: Mapping[str, Changed] = {
    "cleanup.policy": {"read_only": (False, True)},
    "min.insync.replicas": {"read_only": (False, True), "config_source": (3, 5)},
}
"""The configs that we tell of a topic."""

_FROM_FILE = {"config_source": (4, 5)}
"""Kafka's file of the comparison says it; for us it is the default."""

BROKER_CONFIGS: Mapping[str, Changed] = {
    "node.id": _FROM_FILE,
    "broker.id": _FROM_FILE,
    "listeners": {
        "value": (
            "PLAINTEXT://127.0.0.1:*,CONTROLLER://127.0.0.1:*",
            "PLAINTEXT://127.0.0.1:*",
        ),
        "read_only": (False, True),
    },
    "socket.request.max.bytes": {"value": ("104857600", "8388608")},
    "max.connections": {"value": ("2147483647", "10000"), "read_only": (False, True)},
    "max.connections.per.ip": {"value": ("2147483647", "5000"), "read_only": (False, True)},
    "connections.max.idle.ms": {},
    "auto.create.topics.enable": _FROM_FILE,
    "num.partitions": {},
    "default.replication.factor": {},
    "delete.topic.enable": {},
    "group.coordinator.rebalance.protocols": {
        "value": ("classic,consumer,streams", "classic,consumer")
    },
    "group.min.session.timeout.ms": {},
    "group.max.session.timeout.ms": {},
    "group.initial.rebalance.delay.ms": {},
    "group.max.size": _FROM_FILE,
    "group.consumer.session.timeout.ms": {},
    "group.consumer.min.session.timeout.ms": {},
    "group.consumer.max.session.timeout.ms": {},
    "group.consumer.heartbeat.interval.ms": {},
    "group.consumer.min.heartbeat.interval.ms": {},
    "group.consumer.max.heartbeat.interval.ms": {},
    "group.consumer.max.size": _FROM_FILE,
    "group.consumer.assignors": {},
    "group.consumer.migration.policy": _FROM_FILE,
    "group.consumer.assignment.interval.ms": {"read_only": (False, True)},
    "group.consumer.min.assignment.interval.ms": {},
    "group.consumer.max.assignment.interval.ms": {},
    "offset.metadata.max.bytes": _FROM_FILE,
    "offsets.retention.minutes": {},
    "offsets.retention.check.interval.ms": {},
    "offsets.commit.timeout.ms": {"value": ("5000", "300"), "config_source": (5, 4)},
    "offsets.topic.num.partitions": _FROM_FILE,
}
"""The configs that we tell of the broker. Ports count as ``*``."""


def served_keys(kafka: Any, ours: Any) -> bool:
    """Ours are all of Kafka's with their versions, but those that are not served."""
    return bool(ours == [one for one in kafka if one["api_key"] not in NOT_SERVED])


def our_features(kafka: Any, ours: Any) -> bool:
    """Ours are all of Kafka's that we have."""
    return bool(ours == [one for one in kafka if one["name"] in FEATURES])


def configs_are(told: Mapping[str, Changed]) -> Callable[[Any, Any], bool]:
    """Ours are exactly these, and as Kafka's but for what is named."""

    def holds(kafka: Any, ours: Any) -> bool:
        theirs, mine = _by_name(kafka), _by_name(ours)
        return (
            len(mine) == len(ours)
            and mine.keys() == told.keys()
            and all(
                name in theirs and _as_told(theirs[name], mine[name], told[name]) for name in mine
            )
        )

    return holds


def configs_and(more: frozenset[str]) -> Callable[[Any, Any], bool]:
    """Ours are all of Kafka's as they are but those of share groups, and these."""

    def holds(kafka: Any, ours: Any) -> bool:
        mine = _by_name(ours)
        rest = {name: one for name, one in mine.items() if name not in more}
        served = [one for one in kafka if not one["name"].startswith("share.")]
        return len(mine) == len(ours) and more <= mine.keys() and rest == _by_name(served)

    return holds


def no_configs(kafka: Any, ours: Any) -> bool:
    """Of loggers and client metrics we tell nothing; of the broker, which has an id, we do."""
    return ours == [] and kafka != [] and "node.id" not in _by_name(kafka)


def no_loggers(kafka: Any, ours: Any) -> bool:
    """Ours are all of Kafka's resources with configs but the loggers."""
    kept = [one for one in kafka if one["resource_type"] != 8]
    return bool(len(kept) < len(kafka) and sorted(kept, key=str) == sorted(ours, key=str))


def _as_told(kafka: dict[str, Any], ours: dict[str, Any], changed: Changed) -> bool:
    return kafka.keys() == ours.keys() and all(
        (_without_ports(kafka[field]), _without_ports(ours[field])) == changed[field]
        if field in changed
        else kafka[field] == ours[field]
        for field in kafka
    )


def _without_ports(value: Any) -> Any:
    return re.sub(r":\d+", ":*", value) if isinstance(value, str) else value


def _by_name(configs: Any) -> dict[str, Any]:
    """By their names; of what is said of each only that something is, as everywhere."""
    return {
        one["name"]: {**one, "documentation": bool(one.get("documentation"))} for one in configs
    }
