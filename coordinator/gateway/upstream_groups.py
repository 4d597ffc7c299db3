"""Groups in the upstream, the Kafka cluster behind the gateway: members and committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from groupkeeper.coordinator.core.errors import ErrorCode, error_name
from groupkeeper.coordinator.gateway.client import UnsupportedApi
from groupkeeper.protocol.writer import Row

FIND_COORDINATOR, FIND_VERSIONS = 10, range(7)
DESCRIBE_GROUPS, DESCRIBE_VERSIONS = 15, range(7)
CONSUMER_GROUP_DESCRIBE, CONSUMER_DESCRIBE_VERSIONS = 69, range(2)
OFFSET_FETCH, FETCH_VERSIONS = 9, range(2, 10)
OFFSET_COMMIT, COMMIT_VERSIONS = 8, range(2, 10)
"""We use no version from 10 on: those name topics by id, and our topics may have none."""

_IDLE: Final = frozenset({"", "Dead", "Empty"})
_ABSENT: Final = frozenset(
    {
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_VERSION,  # a cluster without groups of this type
    }
)


class GroupsError(Exception):
    """The upstream refuses a request, or cannot answer it now. The message is one line."""


class UpstreamOffset(NamedTuple):
    """The committed offset of one partition of a group, as the upstream returned it."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class AsksBroker(Protocol):
    """Sends our requests to one broker (``client.BrokerClient``)."""

    async def ask(self, api_key: int, versions: range, **values: Any) -> Any:
        """Send a request. Return the answer. Raises BrokerError if there is no answer."""
        ...


class AsksCluster(Protocol):
    """Sends our requests to the upstream (``brokers.UpstreamBrokers``)."""

    def client(self, broker_id: int) -> AsksBroker:
        """Return the client of a broker. Raises BrokerError if the broker is not known."""
        ...

    async def ask(self, api_key: int, versions: range, **values: Any) -> Any:
        """Ask brokers until one answers. Return its answer. Raises BrokerError if none answers."""
        ...


CommitErrors: TypeAlias = Mapping[tuple[str, int], int]
"""The refused partitions: (topic, partition) -> the error of the upstream."""


class UpstreamGroups:
    """Reads groups of the upstream, and commits their offsets there.

    Each call may raise BrokerError or GroupsError.
    """

    def __init__(self, cluster: AsksCluster) -> None:
        self._cluster = cluster

    async def coordinator_of(self, group_id: str) -> AsksBroker | None:
        """Return the client of a group's coordinator; None if the upstream serves no groups."""
        try:
            answer = await self._cluster.ask(
                FIND_COORDINATOR,
                FIND_VERSIONS,
                key=group_id,
                key_type=0,
                coordinator_keys=[group_id],
            )
        except UnsupportedApi:
            return None
        found = answer.coordinators[0] if getattr(answer, "coordinators", ()) else answer
        _raise_if(found.error_code, f"the coordinator of group {group_id!r} upstream")
        return self._cluster.client(found.node_id)

    async def has_members(self, coordinator: AsksBroker, group_id: str) -> bool:
        """Return True if the group has members in the upstream, of either group protocol."""
        try:
            answer = await coordinator.ask(
                CONSUMER_GROUP_DESCRIBE,
                CONSUMER_DESCRIBE_VERSIONS,
                group_ids=[group_id],
                include_authorized_operations=False,
            )
            (group,) = answer.groups
            if group.error_code == ErrorCode.NONE:
                return bool(group.members)
            if group.error_code not in _ABSENT:
                _raise_if(group.error_code, f"group {group_id!r} upstream")
        except UnsupportedApi:
            pass
        answer = await coordinator.ask(
            DESCRIBE_GROUPS,
            DESCRIBE_VERSIONS,
            groups=[group_id],
            include_authorized_operations=False,
        )
        (group,) = answer.groups
        if group.error_code not in _ABSENT:
            _raise_if(group.error_code, f"group {group_id!r} upstream")
        return group.group_state not in _IDLE

    async def offsets(self, coordinator: AsksBroker, group_id: str) -> list[UpstreamOffset]:
        """Return all committed offsets; none if the upstream does not have the group. Raises
        GroupsError if some are part of an open transaction, because they may still change."""
        row = Row(group_id=group_id, member_id=None, member_epoch=-1, topics=None)
        answer = await coordinator.ask(
            OFFSET_FETCH,
            FETCH_VERSIONS,
            group_id=group_id,
            topics=None,
            groups=[row],
            require_stable=True,
        )
        group = answer.groups[0] if hasattr(answer, "groups") else answer
        if group.error_code in _ABSENT:
            return []
        _raise_if(group.error_code, f"the offsets of group {group_id!r} upstream")
        found = []
        for topic in group.topics:
            for row in topic.partitions:
                _raise_if(row.error_code, f"an offset of group {group_id!r} upstream")
                epoch = getattr(row, "committed_leader_epoch", -1)
                found.append(
                    UpstreamOffset(
                        topic.name,
                        row.partition_index,
                        row.committed_offset,
                        epoch,
                        row.metadata or "",
                    )
                )
        return found

    async def commit(
        self, coordinator: AsksBroker, group_id: str, offsets: Iterable[UpstreamOffset]
    ) -> CommitErrors:
        """Commit as an administrator does: without a member. Return the errors of refused offsets.

        A group that has members in the upstream refuses all offsets.
        """
        by_topic: dict[str, list[Row]] = {}
        for topic, partition, offset, epoch, metadata in offsets:
            row = Row(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=metadata,
            )
            by_topic.setdefault(topic, []).append(row)
        answer = await coordinator.ask(
            OFFSET_COMMIT,
            COMMIT_VERSIONS,
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            retention_time=-1,
            topics=[Row(name=name, partitions=rows) for name, rows in by_topic.items()],
        )
        return {
            (topic.name, row.partition_index): row.error_code
            for topic in answer.topics
            for row in topic.partitions
            if row.error_code
        }


def _raise_if(code: int, what: str) -> None:
    if code:
        raise GroupsError(f"{what}: {error_name(code)}")
