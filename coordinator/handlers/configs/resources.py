"""The types of resources that have configs, and the refusals that all APIs of configs share."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from groupkeeper.coordinator.core.errors import ErrorCode


class ResourceType(IntEnum):
    """The type of a resource that has configs (Kafka's ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Refusal(NamedTuple):
    """The answer for a resource about which the cluster shard is not asked. ``error`` is NONE if
    the request changes nothing.
    """

    error: ErrorCode
    message: str | None


def denied(resource_type: int) -> tuple[ErrorCode, str]:
    """Return the refusal of a client without permission, in Kafka's words for the resource type."""
    if resource_type == ResourceType.GROUP:
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."
    if resource_type == ResourceType.TOPIC:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."


def broker_name_error(name: str, node_id: int) -> str | None:
    """Return the error for the name of a broker; None if it is the name of this server, or "" for
    all brokers.
    """
    if name in ("", str(node_id)):
        return None
    return f"Unexpected broker id, expected {node_id} or empty string, but received {name}"
