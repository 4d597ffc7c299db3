"""Our settings under the names of Kafka's broker configs, for DescribeConfigs.

Only settings that have an effect here are reported. A broker has about 300 more keys, for logs,
quotas, security and other group types. Invented values for these keys would mislead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.cluster.group_configs import ConfigKind
from groupkeeper.coordinator.daemon.config import Settings
from groupkeeper.coordinator.handlers.services import BrokerConfig

_INT, _LONG = ConfigKind.INT, ConfigKind.LONG
_BOOLEAN, _LIST = ConfigKind.BOOLEAN, ConfigKind.LIST


class _Known(NamedTuple):
    name: str
    kind: ConfigKind
    read: Callable[[Settings], int | bool | str]


def _consumers(name: str, kind: ConfigKind = _INT) -> _Known:
    """Return a setting of consumer groups. Our name has underscores where Kafka's name has dots."""
    ours = name.replace(".", "_")
    return _Known(f"group.{name}", kind, lambda s: _joined(getattr(s.group, ours)))


def _joined(value: int | str | tuple[str, ...]) -> int | str:
    return ",".join(value) if isinstance(value, tuple) else value


# Kafka does not report group.consumer.regex.refresh.interval.ms, which is internal there.
_CONSUMER: Final = (
    _consumers("consumer.session.timeout.ms"),
    _consumers("consumer.min.session.timeout.ms"),
    _consumers("consumer.max.session.timeout.ms"),
    _consumers("consumer.heartbeat.interval.ms"),
    _consumers("consumer.min.heartbeat.interval.ms"),
    _consumers("consumer.max.heartbeat.interval.ms"),
    _consumers("consumer.max.size"),
    _consumers("consumer.assignors", _LIST),
    _consumers("consumer.migration.policy", ConfigKind.STRING),
    _consumers("consumer.assignment.interval.ms"),
    _consumers("consumer.min.assignment.interval.ms"),
    _consumers("consumer.max.assignment.interval.ms"),
)

_KNOWN: Final = (
    _Known("node.id", _INT, lambda s: s.node_id),
    _Known("broker.id", _INT, lambda s: s.node_id),
    _Known("listeners", _LIST, lambda s: f"PLAINTEXT://{s.kafka.listen}"),
    _Known(
        "advertised.listeners",
        _LIST,
        lambda s: f"PLAINTEXT://{s.kafka.advertised}" if s.kafka.advertised else "",
    ),
    _Known("socket.request.max.bytes", _INT, lambda s: s.kafka.max_frame_bytes),
    _Known("max.connections", _INT, lambda s: s.kafka.max_connections),
    _Known("max.connections.per.ip", _INT, lambda s: s.kafka.max_connections_per_address),
    _Known("connections.max.idle.ms", _LONG, lambda s: s.kafka.connections_max_idle_ms),
    _Known("auto.create.topics.enable", _BOOLEAN, lambda s: s.static.auto_create_topics),
    _Known("num.partitions", _INT, lambda s: s.static.num_partitions),
    _Known("default.replication.factor", _INT, lambda _: 1),
    _Known("delete.topic.enable", _BOOLEAN, lambda _: True),
    _Known(
        "group.coordinator.rebalance.protocols",
        _LIST,
        lambda s: ",".join(s.group.rebalance_protocols),
    ),
    _Known("group.min.session.timeout.ms", _INT, lambda s: s.group.min_session_timeout_ms),
    _Known("group.max.session.timeout.ms", _INT, lambda s: s.group.max_session_timeout_ms),
    _Known("group.initial.rebalance.delay.ms", _INT, lambda s: s.group.initial_rebalance_delay_ms),
    _Known("group.max.size", _INT, lambda s: s.group.max_size),
    *_CONSUMER,
    _Known("offset.metadata.max.bytes", _INT, lambda s: s.offsets.metadata_max_bytes),
    _Known("offsets.retention.minutes", _INT, lambda s: s.offsets.retention_minutes),
    _Known(
        "offsets.retention.check.interval.ms",
        _LONG,
        lambda s: s.offsets.retention_check_interval_ms,
    ),
    _Known("offsets.commit.timeout.ms", _INT, lambda s: s.storage.append_timeout_ms),
    _Known("offsets.topic.num.partitions", _INT, lambda s: s.offsets.topic_num_partitions),
)


def broker_configs(settings: Settings) -> tuple[BrokerConfig, ...]:
    """Return the settings in force as a broker's configs, with our defaults. Empty settings are
    left out.
    """
    defaults = Settings.model_construct()  # without the environment's values
    return tuple(
        BrokerConfig(name, kind, value, _text(read(defaults)))
        for name, kind, read in _KNOWN
        if (value := _text(read(settings)))
    )


def _text(value: int | bool | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
