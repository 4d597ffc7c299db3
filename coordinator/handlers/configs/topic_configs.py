"""Kafka's topic configs. CreateTopics accepts them as Kafka does, but they have no effect.

Topics of static mode have no messages, so no config applies to them. A name that Kafka does not
have is refused, and so is a value of the wrong type. Both are mistakes on any server. Other limits
of a value are not checked
(docs/understand/differences.md#configs-without-effect-have-a-plain-check).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from groupkeeper.coordinator.core.cluster.group_configs import ConfigKind, is_boolean, whole_number

_NAMES: Final = {
    ConfigKind.BOOLEAN: """preallocate remote.log.copy.disable remote.log.delete.on.disable
        remote.storage.enable unclean.leader.election.enable""",
    ConfigKind.DOUBLE: "min.cleanable.dirty.ratio",
    ConfigKind.INT: """compression.gzip.level compression.lz4.level compression.zstd.level
        index.interval.bytes internal.segment.bytes max.message.bytes min.insync.replicas
        segment.bytes segment.index.bytes""",
    ConfigKind.LIST: """cleanup.policy follower.replication.throttled.replicas
        leader.replication.throttled.replicas""",
    ConfigKind.LONG: """delete.retention.ms file.delete.delay.ms flush.messages flush.ms
        local.retention.bytes local.retention.ms max.compaction.lag.ms
        message.timestamp.after.max.ms message.timestamp.before.max.ms min.compaction.lag.ms
        retention.bytes retention.ms segment.jitter.ms segment.ms""",
    ConfigKind.STRING: "compression.type message.timestamp.type",
}
"""The names of Kafka's topic configs (LogConfig of Kafka 4.3.1)."""

TOPIC_CONFIGS: Final[Mapping[str, ConfigKind]] = {
    name: kind for kind, names in _NAMES.items() for name in names.split()
}

_BITS: Final = {ConfigKind.INT: 32, ConfigKind.LONG: 64}
_REAL: Final = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)


def topic_config_error(configs: Mapping[str, str]) -> str | None:
    """Return the first error in the configs of a topic; None if there is none."""
    for name, value in configs.items():
        kind = TOPIC_CONFIGS.get(name)
        if kind is None:
            return f"Unknown topic config name: {name}"
        if not _is_of(kind, value):
            return f"Invalid value {value} for configuration {name}: Not of type {kind.value}"
    if configs.get("remote.storage.enable", "").strip().lower() == "true":
        return "There is no tiered storage."
    return None


def _is_of(kind: ConfigKind, value: str) -> bool:
    if kind is ConfigKind.BOOLEAN:
        return is_boolean(value)
    if kind is ConfigKind.DOUBLE:
        return _REAL.fullmatch(value) is not None
    return kind not in _BITS or whole_number(value, _BITS[kind]) is not None
