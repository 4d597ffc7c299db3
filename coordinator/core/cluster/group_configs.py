"""Configs of single groups (docs/spec/administration.md#group-configs): Kafka's keys, and our own
keys for classic groups.

The configs of a group are strings, as an administrator set them. ``GroupOverrides`` has them in the
form that the core uses. As in Kafka, the keys of group types that are not served are kept and
described, but have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.limits import CoreLimits

_SPACES: Final = "".join(map(chr, range(0x21)))
"""The characters that Java's ``String.trim`` removes: every control character and the space."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")


class ConfigKind(Enum):
    """The type of a value, by Kafka's names (ConfigDef.Type)."""

    BOOLEAN = "BOOLEAN"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    LIST = "LIST"


class Triple(NamedTuple):
    """The names of three fields of ``CoreLimits``: the default and the two bounds of a key."""

    default: str
    least: str
    most: str


class ConfigKey(NamedTuple):
    """One key that a group may set."""

    name: str
    kind: ConfigKind
    default: str
    """The value of an unset key. Empty for our keys that follow a setting of the daemon."""
    least: int = 0
    most: int = 2**31 - 1
    kafka_synonym: bool = True
    """True if the broker has this key too, with the prefix ``group.``."""
    doc: str = ""
    triple: Triple | None = None
    """The settings of the daemon that have the default and the bounds. If set, ``default``,
    ``least`` and ``most`` are not used.
    """


COMMIT_MONOTONIC = "commit.monotonic"
CONSUMER_SESSION_TIMEOUT_MS = "consumer.session.timeout.ms"
CONSUMER_HEARTBEAT_INTERVAL_MS = "consumer.heartbeat.interval.ms"
CONSUMER_ASSIGNMENT_INTERVAL_MS = "consumer.assignment.interval.ms"
REBALANCE_MAX_JOIN_MS = "rebalance.max.join.ms"
INITIAL_REBALANCE_DELAY_MS = "initial.rebalance.delay.ms"
OFFSETS_RETENTION_MINUTES = "offsets.retention.minutes"

_INT, _BOOLEAN = ConfigKind.INT, ConfigKind.BOOLEAN


def _kafka(name: str, default: int, least: int, most: int, doc: str) -> ConfigKey:
    return ConfigKey(name, _INT, str(default), least, most, doc=doc)


def _ours(name: str, kind: ConfigKind, default: str, doc: str, least: int = 0) -> ConfigKey:
    return ConfigKey(name, kind, default, least, kafka_synonym=False, doc=doc)


def _of_type(group_type: str, members: str) -> tuple[ConfigKey, ...]:
    """Return three keys for one type of groups. Kafka has them for consumer groups and for streams
    groups. ``members`` is the name of these groups in the keys' descriptions."""
    heartbeat = f"How often members of {members} are told to heartbeat."
    silence = f"How long a member of {members} may be silent."
    pause = f"The least time between two computations of a {group_type} group's assignment."
    return (
        _kafka(f"{group_type}.session.timeout.ms", 45_000, 45_000, 60_000, silence),
        _kafka(f"{group_type}.heartbeat.interval.ms", 5_000, 5_000, 15_000, heartbeat),
        _kafka(f"{group_type}.assignment.interval.ms", 1_000, 0, 15_000, pause),
    )


def _of_consumers(key: ConfigKey) -> ConfigKey:
    """Return a key of consumer groups, whose default and bounds are settings of the daemon."""
    name = key.name.removeprefix("consumer.").replace(".", "_")
    triple = Triple(f"consumer_{name}", f"consumer_min_{name}", f"consumer_max_{name}")
    return key._replace(triple=triple)


_STANDBY = "Standby replicas of each task."
_FIRST_MEMBERS = "How long a streams group waits for its first members."
_KAFKA = (
    *map(_of_consumers, _of_type("consumer", "the consumer protocol")),
    *_of_type("streams", "a streams group"),
    _kafka("streams.num.standby.replicas", 0, 0, 2, _STANDBY),
    _kafka("streams.initial.rebalance.delay.ms", 3_000, 0, 2**31 - 1, _FIRST_MEMBERS),
)

_MONOTONIC = (
    "Refuse a member's commit of an offset below the stored one; administrators may commit it."
)
_MAX_JOIN = "The longest a join phase may last, whatever its members ask for; 0: no bound."
_DELAY = "How long an empty classic group waits for more members."
_RETENTION = (
    "How long the offsets of this group are kept without members (offsets.retention.minutes)."
)
_OURS = (
    _ours(COMMIT_MONOTONIC, _BOOLEAN, "false", _MONOTONIC),
    _ours(REBALANCE_MAX_JOIN_MS, _INT, "0", _MAX_JOIN),
    ConfigKey(INITIAL_REBALANCE_DELAY_MS, _INT, "", doc=_DELAY),
    _ours(OFFSETS_RETENTION_MINUTES, _INT, "", _RETENTION, least=1),
)

CONFIG_KEYS: Final[Mapping[str, ConfigKey]] = {key.name: key for key in (*_KAFKA, *_OURS)}


@dataclass(frozen=True, slots=True)
class GroupOverrides:
    """The configs of a group for the core. If a field is None, the daemon's setting applies.

    Only ``rebalance_max_join_ms`` has no such setting: if it is None, a join phase has no bound.
    """

    commit_monotonic: bool = False
    rebalance_max_join_ms: int | None = None
    initial_rebalance_delay_ms: int | None = None
    offsets_retention_ms: int | None = None
    consumer_session_timeout_ms: int | None = None
    consumer_heartbeat_interval_ms: int | None = None
    consumer_assignment_interval_ms: int | None = None


NO_OVERRIDES: Final = GroupOverrides()


def default_value(key: ConfigKey, limits: CoreLimits) -> str:
    """Return the value for a group that did not set the key."""
    if key.triple is not None:
        return str(getattr(limits, key.triple.default))
    if key.name == INITIAL_REBALANCE_DELAY_MS:
        return str(limits.initial_rebalance_delay_ms)
    if key.name == OFFSETS_RETENTION_MINUTES:
        return str(limits.offsets_retention_ms // 60_000)
    return key.default


def config_error(configs: Mapping[str, str], limits: CoreLimits) -> str | None:
    """Return the first error in the configs of a group, or None."""
    for name, value in configs.items():
        key = CONFIG_KEYS.get(name)
        if key is None:
            return f"Unknown group config name: {name}"
        error = _value_error(key, value, limits)
        if error is not None:
            return error
    return _silence_error(configs, limits)


def _value_error(key: ConfigKey, value: str, limits: CoreLimits) -> str | None:
    wrong = f"Invalid value {value} for configuration {key.name}: "
    if key.kind is ConfigKind.BOOLEAN:
        return None if is_boolean(value) else wrong + "Expected value to be either true or false"
    number = whole_number(value)
    if number is None:
        return wrong + "Not a number of type INT"
    least, most = value_bounds(key, limits)
    if not least <= number <= most:
        return wrong + f"Value must be at least {least} and at most {most}"
    return None


def value_bounds(key: ConfigKey, limits: CoreLimits) -> tuple[int, int]:
    """Return the least and the greatest value of a config that is a number."""
    if key.triple is None:
        return key.least, key.most
    return getattr(limits, key.triple.least), getattr(limits, key.triple.most)


def _silence_error(configs: Mapping[str, str], limits: CoreLimits) -> str | None:
    """Return the error if the session timeout is not longer than the heartbeat interval, or None.
    With such a timeout members would be evicted between two heartbeats
    (GroupConfig.validateValues).
    """
    names = CONSUMER_SESSION_TIMEOUT_MS, CONSUMER_HEARTBEAT_INTERVAL_MS
    session, heartbeat = (
        # each value was accepted before, also with spaces around it
        whole_number(configs.get(name) or default_value(CONFIG_KEYS[name], limits)) or 0
        for name in names
    )
    return None if session > heartbeat else f"{names[0]} must be greater than {names[1]}"


def normal_value(key: ConfigKey, value: str) -> str:
    """Return a value that ``config_error`` has accepted, in its normal form. For example, " 046000"
    becomes "46000".
    """
    plain = value.strip(_SPACES)
    return plain.lower() if key.kind is ConfigKind.BOOLEAN else str(int(plain))


def is_boolean(value: str) -> bool:
    """Return True if a text is "true" or "false", in any case and with spaces around it."""
    return value.strip(_SPACES).lower() in ("true", "false")


def whole_number(value: str, bits: int = 32) -> int | None:
    """Return the whole number that a text has in plain digits, with or without a sign and spaces
    around it. None if the text has anything else, or if the number does not fit into ``bits`` bits
    with its sign.
    """
    plain = value.strip(_SPACES)
    number = int(plain) if _WHOLE.fullmatch(plain) else None
    fits = number is not None and -(1 << bits - 1) <= number < 1 << bits - 1
    return number if fits else None


def to_overrides(configs: Mapping[str, str], limits: CoreLimits) -> GroupOverrides:
    """Convert configs that ``config_error`` has accepted.

    The bounds may have changed since then. A value outside them counts as the nearest bound
    (KIP-1240).
    """
    retention = configs.get(OFFSETS_RETENTION_MINUTES)
    delay = configs.get(INITIAL_REBALANCE_DELAY_MS)
    return GroupOverrides(
        commit_monotonic=configs.get(COMMIT_MONOTONIC, "").strip(_SPACES).lower() == "true",
        rebalance_max_join_ms=int(configs.get(REBALANCE_MAX_JOIN_MS, "0")) or None,
        initial_rebalance_delay_ms=None if delay is None else int(delay),
        offsets_retention_ms=None if retention is None else int(retention) * 60_000,
        consumer_session_timeout_ms=_within(CONSUMER_SESSION_TIMEOUT_MS, configs, limits),
        consumer_heartbeat_interval_ms=_within(CONSUMER_HEARTBEAT_INTERVAL_MS, configs, limits),
        consumer_assignment_interval_ms=_within(CONSUMER_ASSIGNMENT_INTERVAL_MS, configs, limits),
    )


def _within(name: str, configs: Mapping[str, str], limits: CoreLimits) -> int | None:
    value = configs.get(name)
    if value is None:
        return None
    least, most = value_bounds(CONFIG_KEYS[name], limits)
    return min(max(int(value), least), most)
