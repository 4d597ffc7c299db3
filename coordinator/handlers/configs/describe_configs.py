"""DescribeConfigs (32): configs of groups, and the values in force for topics and the broker
(docs/spec/administration.md#group-configs).

| version | change |
| --- | --- |
| 1 | synonyms, and the source of a value |
| 3 | type and documentation |
| 4 | flexible |

A group need not exist. As in Kafka, unknown keys of the request are absent from the answer. A
request without keys gets all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from groupkeeper.coordinator.core.cluster.group_configs import (
    CONFIG_KEYS,
    ConfigKey,
    ConfigKind,
    default_value,
)
from groupkeeper.coordinator.core.cluster.names import topic_name_error
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.handlers.configs.resources import (
    Refusal,
    ResourceType,
    broker_name_error,
    denied,
)
from groupkeeper.protocol.codec import write_elements
from groupkeeper.protocol.versions import ApiKey
from groupkeeper.protocol.writer import Row, Written

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import BrokerConfig, Services


class Source(IntEnum):
    """The origin of a config's value (Kafka's DescribeConfigsResponse.ConfigSource)."""

    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


_TYPE_CODES: Final = {
    ConfigKind.BOOLEAN: 1,
    ConfigKind.STRING: 2,
    ConfigKind.INT: 3,
    ConfigKind.LONG: 5,
    ConfigKind.DOUBLE: 6,
    ConfigKind.LIST: 7,
}
"""The code of each type of value (Kafka's DescribeConfigsResponse.ConfigType)."""


class Entry(NamedTuple):
    """One config in the answer."""

    name: str
    kind: ConfigKind
    is_read_only: bool
    values: tuple[tuple[str, str, Source], ...]
    """(name, value, source) for each source that sets a value. The first one is in force."""
    doc: str


class Wanted(NamedTuple):
    """The keys and details that a request wants for a resource."""

    keys: frozenset[str]
    """The wanted keys; empty if all are wanted."""
    version: int
    with_synonyms: bool
    with_docs: bool


_TYPES: Final = frozenset(ResourceType)
_NO_KEYS: Final = frozenset({""})


TOPIC_ENTRIES: Final = tuple(
    Entry(name, kind, True, ((name, value, Source.DEFAULT),), doc)
    for name, kind, value, doc in (
        (
            "cleanup.policy",
            ConfigKind.LIST,
            "delete",
            "No records are kept, so none is ever compacted.",
        ),
        ("min.insync.replicas", ConfigKind.INT, "1", "Every partition has one replica: here."),
    )
)
"""The configs that every topic shows. Topics here have no records, so no config about retention is
among them."""


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once from durable state, without asking a shard."""
    request = exchange.read(services)
    version = exchange.version
    with_docs = version >= 3 and request.include_documentation
    unknown = _unknown_type(request.resources)
    results = []
    for resource in request.resources:
        keys = frozenset(resource.configuration_keys or ())
        wanted = Wanted(keys, version, request.include_synonyms, with_docs)
        refusal = unknown or judge(resource.resource_type, resource.resource_name, services)
        # As in Kafka, an answer without an error has an empty message, not null.
        error, message = refusal or (ErrorCode.NONE, "")
        exchange.error = exchange.error or error
        results.append(
            Row(
                error_code=error,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=() if refusal else _configs(resource, wanted, services),
            )
        )
    exchange.send(exchange.write(results=results))


def _unknown_type(resources: Iterable[Any]) -> Refusal | None:
    """Return the refusal for an unknown resource type; None if all types are known. Kafka refuses
    the whole request for this error, and for no other (ConfigHelper.handleDescribeConfigsRequest).
    """
    for resource in resources:
        if resource.resource_type not in _TYPES:
            message = f"Unknown resource type: {resource.resource_type}"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    return None


def judge(resource_type: int, name: str, services: Services) -> Refusal | None:
    """Return the refusal for a resource that cannot be described; None if it can be described."""
    if services.denied:
        return Refusal(*denied(resource_type))
    if resource_type == ResourceType.GROUP:
        wrong = None if name else "Group name must not be empty"
    elif resource_type == ResourceType.BROKER:
        wrong = broker_name_error(name, services.node_id)
    elif resource_type == ResourceType.TOPIC:
        wrong_name = topic_name_error(name)
        if wrong_name is not None:
            return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong_name)
        if name not in services.topics.image.by_name:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        wrong = None
    else:
        wrong = f"Unsupported resource type: {resource_type}"
    return None if wrong is None else Refusal(ErrorCode.INVALID_REQUEST, wrong)


def _configs(resource: Any, wanted: Wanted, services: Services) -> Written:
    if wanted.keys:
        # The cache key contains the keys of the request. Unknown keys are left out: clients could
        # fill the cache with them. If no key is known, ``_NO_KEYS`` is used, because no keys at all
        # would mean all configs.
        names = {entry.name for entry in TOPIC_ENTRIES}
        names |= {key.name for key in CONFIG_KEYS.values()}
        names |= {config.name for config in services.broker_configs}
        wanted = wanted._replace(keys=wanted.keys & names or _NO_KEYS)
    if resource.resource_type == ResourceType.GROUP:
        configs = services.coordinator.group_configs
        own = tuple(configs.of(resource.resource_name).items())
        return _group_configs(own, configs.limits, wanted)
    if resource.resource_type == ResourceType.TOPIC:
        return _topic_configs(wanted)
    # "" asks for dynamic configs of all brokers. There are none.
    return _broker_configs(services.broker_configs if resource.resource_name else (), wanted)


@functools.lru_cache(maxsize=256)
def _group_configs(own: tuple[tuple[str, str], ...], limits: CoreLimits, wanted: Wanted) -> Written:
    """Return the configs of a group. Most groups set nothing and share one cache entry."""
    values = dict(own)
    keys = CONFIG_KEYS.values()
    return render([group_entry(key, values.get(key.name), limits) for key in keys], wanted)


@functools.lru_cache(maxsize=64)
def _topic_configs(wanted: Wanted) -> Written:
    return render(TOPIC_ENTRIES, wanted)


@functools.lru_cache(maxsize=64)
def _broker_configs(configs: tuple[BrokerConfig, ...], wanted: Wanted) -> Written:
    return render([_broker_entry(config) for config in configs], wanted)


def group_entry(key: ConfigKey, own: str | None, limits: CoreLimits) -> Entry:
    """Return one config of a group with its values, the one in force first: the group's own value,
    the server's value, and the default.
    """
    values = [] if own is None else [(key.name, own, Source.GROUP)]
    default, in_force = default_value(key, _DEFAULTS), default_value(key, limits)
    broker_name = f"group.{key.name}" if key.kafka_synonym else key.name
    if in_force != default:
        values.append((broker_name, in_force, Source.STATIC_BROKER))
    values.append((broker_name, default, Source.DEFAULT))
    return Entry(key.name, key.kind, False, tuple(values), key.doc)


_DEFAULTS: Final = CoreLimits()


def _broker_entry(config: BrokerConfig) -> Entry:
    values = [(config.name, config.default, Source.DEFAULT)]
    if config.value != config.default:
        values.insert(0, (config.name, config.value, Source.STATIC_BROKER))
    return Entry(config.name, config.kind, True, tuple(values), config.doc)


def render(entries: Iterable[Entry], wanted: Wanted) -> Written:
    """Return the encoded array of configs, in the version of the request."""
    rows = [
        _row(entry, wanted) for entry in entries if not wanted.keys or entry.name in wanted.keys
    ]
    path = "results.configs"
    return Written(len(rows), [write_elements(ApiKey.DESCRIBE_CONFIGS, wanted.version, path, rows)])


def _row(entry: Entry, wanted: Wanted) -> Row:
    _, value, source = entry.values[0]
    return Row(
        name=entry.name,
        value=value,
        read_only=entry.is_read_only,
        config_source=source,
        is_sensitive=False,
        synonyms=[
            Row(name=name, value=synonym, source=synonym_source)
            for name, synonym, synonym_source in (entry.values if wanted.with_synonyms else ())
        ],
        config_type=_TYPE_CODES[entry.kind],
        documentation=entry.doc if wanted.with_docs else None,
    )
