"""Kafka's topic configs: CreateTopics accepts them where Kafka does; nothing follows from them.

Topics of static mode have no messages, so no config of theirs means anything; but a name or a value
that Kafka refuses is refused as well, for it is a mistake wherever it is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.cluster.java_text import (
    parse_double,
    parse_int,
    parse_long,
    split_list,
    trim,
)
from groupkeeper.coordinator.core.cluster.settings import ConfigKind


class TopicConfig(NamedTuple):
    """What Kafka takes as the value of one topic config."""

    kind: ConfigKind
    least: float = 0
    """Of numbers."""
    most: float = float("inf")
    beside: int | None = None
    """One number more, outside of the bounds."""
    choices: frozenset[str] = frozenset()
    """Of texts and of the elements of a list; empty: any."""


_BOOLEAN, _LIST = TopicConfig(ConfigKind.BOOLEAN), TopicConfig(ConfigKind.LIST)
_INT, _LONG, _DOUBLE = ConfigKind.INT, ConfigKind.LONG, ConfigKind.DOUBLE


def _one_of(kind: ConfigKind, *choices: str) -> TopicConfig:
    return TopicConfig(kind, choices=frozenset(choices))


_COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {
    "cleanup.policy": _one_of(ConfigKind.LIST, "compact", "delete"),
    "compression.gzip.level": TopicConfig(_INT, 1, 9, beside=-1),
    "compression.lz4.level": TopicConfig(_INT, 1, 17),
    "compression.type": _one_of(ConfigKind.STRING, *_COMPRESSIONS),
    "compression.zstd.level": TopicConfig(_INT, -131_072, 22),
    "delete.retention.ms": TopicConfig(_LONG),
    "file.delete.delay.ms": TopicConfig(_LONG),
    "flush.messages": TopicConfig(_LONG, 1),
    "flush.ms": TopicConfig(_LONG),
    "follower.replication.throttled.replicas": _LIST,
    "index.interval.bytes": TopicConfig(_INT),
    "internal.segment.bytes": TopicConfig(_INT, -(2**31)),
    "leader.replication.throttled.replicas": _LIST,
    "local.retention.bytes": TopicConfig(_LONG, -2),
    "local.retention.ms": TopicConfig(_LONG, -2),
    "max.compaction.lag.ms": TopicConfig(_LONG, 1),
    "max.message.bytes": TopicConfig(_INT),
    "message.timestamp.after.max.ms": TopicConfig(_LONG),
    "message.timestamp.before.max.ms": TopicConfig(_LONG),
    "message.timestamp.type": _one_of(ConfigKind.STRING, "CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": TopicConfig(_DOUBLE, 0, 1),
    "min.compaction.lag.ms": TopicConfig(_LONG),
    "min.insync.replicas": TopicConfig(_INT, 1),
    "preallocate": _BOOLEAN,
    "remote.log.copy.disable": _BOOLEAN,
    "remote.log.delete.on.disable": _BOOLEAN,
    "remote.storage.enable": _BOOLEAN,
    "retention.bytes": TopicConfig(_LONG, -(2**63)),
    "retention.ms": TopicConfig(_LONG, -1),
    "segment.bytes": TopicConfig(_INT, 1_048_576),
    "segment.index.bytes": TopicConfig(_INT, 4),
    "segment.jitter.ms": TopicConfig(_LONG),
    "segment.ms": TopicConfig(_LONG, 1),
    "unclean.leader.election.enable": _BOOLEAN,
}
"""As Kafka 4.3.1's LogConfig has them."""

_DEFAULT_LISTS: Final = {"cleanup.policy": "delete"}
"""What the lists of a topic hold that was given none; the others are empty."""
_PARSERS: Final = {_INT: parse_int, _LONG: parse_long, _DOUBLE: parse_double}
_REPLICA: Final = re.compile(r"([0-9]+:[0-9]+)?")


def topic_config_error(configs: Mapping[str, str]) -> str | None:
    """Say what is wrong with the configs of a topic as a whole; None where nothing is."""
    for name, value in configs.items():
        config = TOPIC_CONFIGS.get(name)
        if config is None:
            return f"Unknown topic config name: {name}"
        wrong = _value_error(config, trim(value))
        if wrong is not None:
            return f"Invalid value {value} for configuration {name}: {wrong}"
    if trim(configs.get("remote.storage.enable", "")).lower() == "true":
        return "There is no tiered storage."
    shortest = parse_long(trim(configs.get("min.compaction.lag.ms", "")))
    longest = parse_long(trim(configs.get("max.compaction.lag.ms", "")))
    if shortest is not None and longest is not None and shortest > longest:
        return f"min.compaction.lag.ms ({shortest}) is above max.compaction.lag.ms ({longest})"
    return None


def appended(name: str, text: str) -> str:
    """Append to the default value of a list. As in Kafka no element comes twice, and empty ones at
    the end of the text are not there, unless it is nothing else (String.split).
    """
    parts = text.rstrip(",").split(",") if text.strip(",") or not text else []
    return ",".join(dict.fromkeys([*_DEFAULT_LISTS.get(name, "").split(","), *parts]))


def _value_error(config: TopicConfig, text: str) -> str | None:
    if config.kind is ConfigKind.BOOLEAN:
        return None if text.lower() in ("true", "false") else "Expected true or false"
    if config.kind is ConfigKind.STRING:
        return _choice_error(config, [text])
    if config.kind is ConfigKind.LIST:
        elements = split_list(text)
        return _choice_error(config, elements) if config.choices else _throttled_error(elements)
    number = _PARSERS[config.kind](text)
    if number is None:
        return f"Not a number of type {config.kind.value}"
    # No bound holds for NaN, as in Kafka.
    if number != config.beside and (number < config.least or number > config.most):
        return f"Value must be at least {config.least} and at most {config.most}"
    return None


def _choice_error(config: TopicConfig, elements: list[str]) -> str | None:
    if all(element in config.choices for element in elements):
        return None
    return f"String must be one of: {', '.join(sorted(config.choices))}"


def _throttled_error(elements: list[str]) -> str | None:
    """As Kafka's ThrottledReplicaListValidator, which also takes a ``*`` among empty elements."""
    if trim("".join(elements)) == "*" or all(_REPLICA.fullmatch(trim(e)) for e in elements):
        return None
    return "Expected [partition]:[broker],... or *"
