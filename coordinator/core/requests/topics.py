"""Requests to the cluster shard: topics, the configs of groups, and the ports of listeners."""

# A class attribute that overrides a declaration is never assigned again.
# mypy: disable-error-code="mutable-override"
from __future__ import annotations

from typing import ClassVar, NamedTuple, Self

from groupkeeper.coordinator.core.declarations import AnyRequest, AnyResult, Result, ShardRoute
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.wire_values import Int32


class ClusterResult(AnyResult, frozen=True):
    """A result of a request to the cluster shard. In Kafka the controller answers such requests."""

    def replaced(self, code: ErrorCode, loads_again: bool) -> Self:
        """Do the same as the base class, but with NOT_CONTROLLER instead of NOT_COORDINATOR."""
        return super().replaced(_of_controller(code), loads_again)


class ClusterRequest(AnyRequest, frozen=True):
    """A request about data that only the cluster shard has: topics, configs of groups, and data
    about the upstream.
    """

    client: Client
    group_id: ClassVar = None
    route = ShardRoute.CLUSTER
    parks = False
    reads = False
    waits = True
    while_loading = ErrorCode.NOT_CONTROLLER
    when_full = ErrorCode.NOT_CONTROLLER

    def refused(self, code: ErrorCode) -> Result:
        """Do the same as the base class, but with NOT_CONTROLLER instead of NOT_COORDINATOR."""
        return super().refused(_of_controller(code))


def _of_controller(code: ErrorCode) -> ErrorCode:
    return ErrorCode.NOT_CONTROLLER if code is ErrorCode.NOT_COORDINATOR else code


class NewTopic(NamedTuple):
    """A topic to create. The caller generates ``topic_id``, since the core has no randomness."""

    name: str
    partitions: Int32
    topic_id: str
    refusal: tuple[ErrorCode, str] | None = (
        None  # an error that the caller found; errors of the name come first
    )


class TopicChange(NamedTuple):
    """The result for one topic of a ChangeTopics. If the client named an unknown id, the name is
    None. With an error, ``partitions`` is -1.
    """

    name: str | None
    topic_id: str
    partitions: int
    error: ErrorCode
    message: str | None


class ChangeTopicsResult(ClusterResult, frozen=True):
    """The answer to a ChangeTopics: ``error`` for the whole request (NOT_CONTROLLER while the shard
    is loading), or one error for each topic.
    """

    created: tuple[TopicChange, ...] = ()
    grown: tuple[TopicChange, ...] = ()
    deleted: tuple[TopicChange, ...] = ()


class ChangeTopics(ClusterRequest, frozen=True):
    """Create, grow and delete topics. Each topic is checked on its own, and answers have the
    request's order.

    With ``validate_only`` the answer is the same, but nothing changes.
    """

    create: tuple[NewTopic, ...] = ()
    grow: tuple[tuple[str, Int32], ...] = ()
    """Topics to grow: (name, new number of partitions)."""
    delete: tuple[tuple[str | None, str], ...] = ()
    """Topics to delete: (name, ""), or (None, topic id)."""
    validate_only: bool = False
    observed: bool = False
    """True if the changes were seen in an upstream cluster. Then every name that exists there is
    valid, also an internal one, and ``max_partitions`` does not apply.
    """

    result = ChangeTopicsResult


class GroupConfigChange(NamedTuple):
    """The changes of an AlterGroupConfigs to the configs of one group."""

    group_id: str
    changes: tuple[tuple[str, str | None], ...]
    """(key, new value), each key once. None deletes the value, so that the daemon's setting
    applies.
    """


class GroupConfigResult(NamedTuple):
    """The result of an AlterGroupConfigs for one group: NONE, or why nothing was changed."""

    group_id: str
    error: ErrorCode
    message: str | None


class AlterGroupConfigsResult(ClusterResult, frozen=True):
    """The answer to an AlterGroupConfigs: one error for the whole request (NOT_CONTROLLER while
    the shard is loading), or one error for each group.
    """

    groups: tuple[GroupConfigResult, ...] = ()


class AlterGroupConfigs(ClusterRequest, frozen=True):
    """Change configs of groups (docs/spec/administration.md#group-configs).

    Each group is checked on its own, and answers have the request's order. The handler has already
    refused groups that occur twice. With ``validate_only`` the answer is the same, but nothing
    changes.
    """

    groups: tuple[GroupConfigChange, ...]
    validate_only: bool = False

    result = AlterGroupConfigsResult


class ChangeUpstreamResult(ClusterResult, frozen=True):
    """The answer to a ChangeUpstream: one error for the whole request. It is NOT_CONTROLLER while
    the shard is loading.
    """


class ChangeUpstream(ClusterRequest, frozen=True):
    """Store the ports of listeners and the cluster id of the upstream (gateway mode), so that they
    are known after a restart.

    The caller chooses the ports. A port of 0 removes the port of a broker. An empty cluster id
    changes nothing.
    """

    ports: tuple[tuple[Int32, Int32], ...] = ()
    """(broker id, port)."""
    cluster_id: str = ""

    result = ChangeUpstreamResult
