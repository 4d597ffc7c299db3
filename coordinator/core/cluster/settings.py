"""Configs of single groups (docs/spec/administration.md#group-configs): Kafka's keys, and our own
keys for classic groups.

The configs of a group are strings, as an administrator set them. ``GroupOverrides`` has their
meaning for the core. As in Kafka, keys of group types that are not served are kept and described,
but have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.limits import CoreLimits

_SPACES: Final = "".join(map(chr, range(0x21)))
"""What Java's ``String.trim`` removes: every control character and the space."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")


class ConfigKind(Enum):
    """The type of a value, by Kafka's names (ConfigDef.Type)."""

    BOOLEAN = "BOOLEAN"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    LIST = "LIST"


class ConfigKey(NamedTuple):
    """One key that a group may set."""

    name: str
    kind: ConfigKind
    default: str
    """The value of an unset key. Empty for our keys that follow a setting of the daemon."""
    least: int = 0
    most: int = 2**31 - 1
    kafka_synonym: bool = True
    """The key has a broker-wide synonym: the key with the prefix ``group.``."""
    doc: str = ""


COMMIT_MONOTONIC = "commit.monotonic"
REBALANCE_MAX_JOIN_MS = "rebalance.max.join.ms"
INITIAL_REBALANCE_DELAY_MS = "initial.rebalance.delay.ms"
OFFSETS_RETENTION_MINUTES = "offsets.retention.minutes"

_INT, _BOOLEAN = ConfigKind.INT, ConfigKind.BOOLEAN

_KAFKA = (
    ConfigKey(
        "consumer.session.timeout.ms",
        _INT,
        "45000",
        45_000,
        60_000,
        doc="How long a member of the consumer protocol may be silent.",
    ),
    ConfigKey(
        "consumer.heartbeat.interval.ms",
        _INT,
        "5000",
        5_000,
        15_000,
        doc="How often members of the consumer protocol are told to heartbeat.",
    ),
    ConfigKey(
        "consumer.assignment.interval.ms",
        _INT,
        "1000",
        0,
        15_000,
        doc="The least time between two computations of a consumer group's assignment.",
    ),
    ConfigKey(
        "streams.session.timeout.ms",
        _INT,
        "45000",
        45_000,
        60_000,
        doc="How long a member of a streams group may be silent.",
    ),
    ConfigKey(
        "streams.heartbeat.interval.ms",
        _INT,
        "5000",
        5_000,
        15_000,
        doc="How often members of a streams group are told to heartbeat.",
    ),
    ConfigKey(
        "streams.assignment.interval.ms",
        _INT,
        "1000",
        0,
        15_000,
        doc="The least time between two computations of a streams group's assignment.",
    ),
    ConfigKey(
        "streams.num.standby.replicas", _INT, "0", 0, 2, doc="Standby replicas of each task."
    ),
    ConfigKey(
        "streams.initial.rebalance.delay.ms",
        _INT,
        "3000",
        0,
        2**31 - 1,
        doc="How long a streams group waits for its first members.",
    ),
)
_OURS = (
    ConfigKey(
        COMMIT_MONOTONIC,
        _BOOLEAN,
        "false",
        kafka_synonym=False,
        doc="Refuse a member's commit of an offset below the stored one; administrators may.",
    ),
    ConfigKey(
        REBALANCE_MAX_JOIN_MS,
        _INT,
        "0",
        kafka_synonym=False,
        doc="The longest a join phase may last, whatever its members ask for; 0: no bound.",
    ),
    ConfigKey(
        INITIAL_REBALANCE_DELAY_MS,
        _INT,
        "",
        doc="How long an empty classic group waits for more members.",
    ),
    ConfigKey(
        OFFSETS_RETENTION_MINUTES,
        _INT,
        "",
        1,
        kafka_synonym=False,
        doc="How long offsets outlive their use (offsets.retention.minutes, for this group).",
    ),
)

CONFIG_KEYS: Final[Mapping[str, ConfigKey]] = {key.name: key for key in (*_KAFKA, *_OURS)}


@dataclass(frozen=True, slots=True)
class GroupOverrides:
    """The configs of a group for the core. None: the daemon's setting applies."""

    commit_monotonic: bool = False
    rebalance_max_join_ms: int | None = None
    initial_rebalance_delay_ms: int | None = None
    offsets_retention_ms: int | None = None


NO_SETTINGS: Final = GroupOverrides()


def default_value(key: ConfigKey, limits: CoreLimits) -> str:
    """Return the value for a group that did not set the key."""
    if key.name == INITIAL_REBALANCE_DELAY_MS:
        return str(limits.initial_rebalance_delay_ms)
    if key.name == OFFSETS_RETENTION_MINUTES:
        return str(limits.offsets_retention_ms // 60_000)
    return key.default


def config_error(configs: Mapping[str, str]) -> str | None:
    """Return the first error in the configs of a group, or None."""
    for name, value in configs.items():
        key = CONFIG_KEYS.get(name)
        if key is None:
            return f"Unknown group config name: {name}"
        error = _value_error(key, value)
        if error is not None:
            return error
    return None


def _value_error(key: ConfigKey, value: str) -> str | None:
    wrong = f"Invalid value {value} for configuration {key.name}: "
    if key.kind is ConfigKind.BOOLEAN:
        return None if is_boolean(value) else wrong + "Expected value to be either true or false"
    number = whole_number(value)
    if number is None:
        return wrong + "Not a number of type INT"
    if not key.least <= number <= key.most:
        return wrong + f"Value must be at least {key.least} and at most {key.most}"
    return None


def normal_value(key: ConfigKey, value: str) -> str:
    """Return a value that ``config_error`` has accepted, in its normal form: " 046000" is
    "46000".
    """
    plain = value.strip(_SPACES)
    return plain.lower() if key.kind is ConfigKind.BOOLEAN else str(int(plain))


def is_boolean(value: str) -> bool:
    """Return whether a value is true or false."""
    return value.strip(_SPACES).lower() in ("true", "false")


def whole_number(value: str, bits: int = 32) -> int | None:
    """Return a number in plain digits. None if it is not one, or has too many bits."""
    plain = value.strip(_SPACES)
    number = int(plain) if _WHOLE.fullmatch(plain) else None
    fits = number is not None and -(1 << bits - 1) <= number < 1 << bits - 1
    return number if fits else None


def to_settings(configs: Mapping[str, str]) -> GroupOverrides:
    """Return the overrides from configs that ``config_error`` has accepted."""
    retention = configs.get(OFFSETS_RETENTION_MINUTES)
    delay = configs.get(INITIAL_REBALANCE_DELAY_MS)
    return GroupOverrides(
        commit_monotonic=configs.get(COMMIT_MONOTONIC, "").strip(_SPACES).lower() == "true",
        rebalance_max_join_ms=int(configs.get(REBALANCE_MAX_JOIN_MS, "0")) or None,
        initial_rebalance_delay_ms=None if delay is None else int(delay),
        offsets_retention_ms=None if retention is None else int(retention) * 60_000,
    )
