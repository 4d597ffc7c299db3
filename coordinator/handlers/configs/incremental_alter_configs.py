"""IncrementalAlterConfigs (44): set and delete configs of groups
(docs/spec/administration.md#group-configs).

| version | change |
| --- | --- |
| 1 | flexible |

Each resource is checked on its own. Errors that the request alone shows are answered here. The
cluster shard, which holds the configs, answers for all other resources. Configs of topics and of
the broker cannot be changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groupkeeper.coordinator.core.cluster.group_configs import ConfigKind
from groupkeeper.coordinator.core.cluster.names import topic_name_error
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.topics import (
    AlterGroupConfigs,
    AlterGroupConfigsResult,
    GroupConfigChange,
)
from groupkeeper.coordinator.handlers.configs.resources import (
    Refusal,
    ResourceType,
    broker_name_error,
    denied,
)
from groupkeeper.coordinator.handlers.configs.topic_configs import (
    TOPIC_CONFIGS,
    topic_config_error,
)
from groupkeeper.coordinator.handlers.topic_changes import repeated
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

SET, DELETE, APPEND, SUBTRACT = range(4)
"""The codes of the changes of a config (Kafka's AlterConfigOp.OpType)."""

_LIST_OPERATIONS = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


def handle(exchange: Exchange, services: Services) -> None:
    """Submit the groups whose configs may be changed. The answer is sent when the change is durable
    and every shard uses it.
    """
    wire = exchange.read(services)
    twice = repeated([(r.resource_type, r.resource_name) for r in wire.resources])
    refusals = [
        Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        if (resource.resource_type, resource.resource_name) in twice
        else refusal_of(resource, services)
        for resource in wire.resources
    ]
    asked = [
        GroupConfigChange(
            resource.resource_name,
            tuple(
                [
                    (config.name, None if config.config_operation == DELETE else config.value)
                    for config in resource.configs
                ]
            ),
        )
        for resource, refusal in zip(wire.resources, refusals, strict=True)
        if refusal is None
    ]
    exchange.asked = (wire.resources, refusals)
    exchange.render = render
    if asked:
        request = AlterGroupConfigs(exchange.client, tuple(asked), wire.validate_only)
        services.coordinator.submit(request, exchange)
    else:
        exchange.resolve(AlterGroupConfigsResult(ErrorCode.NONE))


def refusal_of(resource: Any, services: Services) -> Refusal | None:
    """Return the first error of a resource, in Kafka's order. Return None if the cluster shard,
    which holds the configs, has to decide.
    """
    if services.denied:
        return Refusal(*denied(resource.resource_type))
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        return Refusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [c.name for c in resource.configs if c.value is None and c.config_operation != DELETE]
    if nulls:
        message = f"Null value not supported for : {', '.join(nulls)}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    for config in resource.configs:
        operation = _LIST_OPERATIONS.get(config.config_operation)
        if operation is not None and not _may_be_list(resource.resource_type, config.name):
            message = f"Can't {operation} to key {config.name} because its type is not LIST."
            return Refusal(ErrorCode.INVALID_CONFIG, message)
        if config.config_operation not in (SET, DELETE, APPEND, SUBTRACT):
            message = f"Unknown operation {config.config_operation}"
            return Refusal(ErrorCode.INVALID_REQUEST, message)
    if resource.resource_type == ResourceType.GROUP:
        return None
    if resource.resource_type == ResourceType.TOPIC:
        return _refusal_of_topic(resource, services)
    return _refusal_of_others(resource, services)


def _may_be_list(kind: int, name: str) -> bool:
    if kind == ResourceType.GROUP:
        return False
    return kind != ResourceType.TOPIC or TOPIC_CONFIGS.get(name) is ConfigKind.LIST


def _refusal_of_topic(resource: Any, services: Services) -> Refusal:
    """Return the answer for a topic. A topic has no configs here, so only DELETE is accepted."""
    name = resource.resource_name
    if name == "":
        return Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    wrong_name = topic_name_error(name)
    if wrong_name is not None:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong_name)
    changes = [config for config in resource.configs if config.config_operation != DELETE]
    wrong = topic_config_error({c.name: c.value for c in changes})
    if wrong is not None:
        return Refusal(ErrorCode.INVALID_CONFIG, wrong)
    if name not in services.topics.image.by_name:
        message = f"The topic '{name}' does not exist."
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if not changes:
        return Refusal(ErrorCode.NONE, None)
    message = "Topics hold no records here, and so they have no configs."
    return Refusal(ErrorCode.POLICY_VIOLATION, message)


def _refusal_of_others(resource: Any, services: Services) -> Refusal:
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceType.BROKER:
        wrong = broker_name_error(name, services.node_id)
        if wrong is not None:
            return Refusal(ErrorCode.INVALID_REQUEST, wrong)
        if not resource.configs:
            return Refusal(ErrorCode.NONE, None)
        message = "The settings of this server are changed in its configuration file."
        return Refusal(ErrorCode.POLICY_VIOLATION, message)
    known = kind in set(ResourceType)
    message = f"{'Unsupported' if known else 'Unknown'} resource type {kind}"
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def render(result: AlterGroupConfigsResult, exchange: Exchange) -> bytes:
    """Return the reply frame in the version of the request, with one row for each resource."""
    resources, refusals = exchange.asked
    decided = iter(result.groups)
    answers = []
    for resource, refusal in zip(resources, refusals, strict=True):
        if refusal is not None:
            error, message = refusal
        elif result.error is not ErrorCode.NONE:
            error, message = result.error, result.error.name
        else:
            _, error, message = next(decided)
        exchange.error = exchange.error or error
        answers.append(
            Row(
                error_code=error,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return exchange.write(responses=answers)
