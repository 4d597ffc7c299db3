"""Reads the groups of a cluster over the Kafka protocol, for output to people."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from groupkeeper.coordinator.cli.broker_client import Broker, BrokerCluster, ServerError
from groupkeeper.coordinator.cli.group_waiting import WaitingReport, details_of, waiting_of
from groupkeeper.coordinator.core.errors import ErrorCode, error_name
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.protocol.consumer_protocol import (
    ConsumerProtocolError,
    decode_assignment,
    subscribed_topics,
)
from groupkeeper.protocol.writer import Row

LIST_OFFSETS, OFFSET_FETCH, DESCRIBE_GROUPS, LIST_GROUPS, CONSUMER_GROUP_DESCRIBE = 2, 9, 15, 16, 69

STATES: Final = tuple(state.value for state in GroupState)
TYPES: Final = ("classic", "consumer", "share", "streams")

_LATEST: Final = -1
_NO_OFFSET: Final = -1

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group in a listing. Fields that an old broker does not send are ""."""

    group: str
    type: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True)
class MemberReport:
    """A member and its assigned partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class Offset:
    """A partition that has a committed offset, or is assigned to a member.

    ``committed`` is None if no offset is committed. ``end`` is None if the partition has no leader.
    If one of them is None, ``lag`` is None too. The last three fields describe the member that has
    the partition. They are None if no member has it.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member_id: str | None
    client_id: str | None
    host: str | None


@dataclass(frozen=True, slots=True)
class UnknownTopic:
    """A topic that members subscribe to but that does not exist.

    ``nearest`` is the topic with the most similar name; None if no name is similar.
    """

    topic: str
    nearest: str | None


@dataclass(frozen=True, slots=True)
class GroupReport:
    """One group, as ``group describe`` shows it."""

    group: str
    type: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: Broker
    members: list[MemberReport]
    offsets: list[Offset]
    topics: list[str] = field(default_factory=list)
    """The topics that the members subscribe to; empty if the broker does not report them."""
    unknown_topics: list[UnknownTopic] = field(default_factory=list)
    patterns: list[str] = field(default_factory=list)
    """The regular expressions that the members subscribe to."""
    waiting: WaitingReport | None = None

    @property
    def total_lag(self) -> int | None:
        """The sum of the lags of all partitions with a known lag; None if there is no such
        partition."""
        lags = [offset.lag for offset in self.offsets if offset.lag is not None]
        return sum(lags) if lags else None

    def as_json(self) -> dict[str, Any]:
        """Return the fields of the report by name, as ``--output json`` prints them."""
        content = asdict(self)
        host, port = self.coordinator.address
        content["coordinator"] = {
            "node_id": self.coordinator.node_id,
            "host": host,
            "port": port,
        }
        content["total_lag"] = self.total_lag
        return content


def list_groups(
    cluster: BrokerCluster, states: Collection[str], types: Collection[str]
) -> list[GroupLine]:
    """Return the groups of all brokers, sorted by name.

    ``states`` and ``types`` are filters, with elements of STATES and TYPES. An empty filter accepts
    all groups.
    """
    found: list[GroupLine] = []
    for broker in cluster.brokers():
        found += _list_of(cluster, broker, states, types)
    # an old broker ignores the filters
    kept = [
        group
        for group in found
        if (not states or group.state in states) and (not types or group.type in types)
    ]
    return sorted(kept, key=lambda group: group.group)


def _list_of(
    cluster: BrokerCluster, broker: Broker, states: Collection[str], types: Collection[str]
) -> Iterable[GroupLine]:
    while True:
        answer = cluster.to(broker.address).ask(
            LIST_GROUPS, range(6), states_filter=sorted(states), types_filter=sorted(types)
        )
        if not answer.error_code:
            break
        cluster.wait_or_raise(answer.error_code, "ListGroups")
    return [
        GroupLine(
            group.group_id,
            getattr(group, "group_type", "").lower(),
            group.protocol_type,
            getattr(group, "group_state", ""),
        )
        for group in answer.groups
    ]


def describe_group(cluster: BrokerCluster, group_id: str) -> GroupReport | None:
    """Return a group; None if it does not exist. Raises ServerError for a share or streams group,
    which cannot be described here."""
    broker = cluster.coordinator(group_id)
    described = _classic(cluster, broker, group_id) or _consumer(cluster, broker, group_id)
    if described is None:
        for listed in _list_of(cluster, broker, (), ()):
            if listed.group == group_id:
                raise ServerError(
                    f"group {group_id!r} is a {listed.type} group; "
                    "only classic and consumer groups can be described"
                )
        return None
    # committed offsets before ends: the other order could give lags below 0
    committed = _committed(cluster, broker, group_id)
    owners = {
        (topic, partition): member
        for member in described.members
        for topic, partitions in member.partitions.items()
        for partition in partitions
    }
    partitions = sorted({*committed, *owners})
    ends = _ends(cluster, partitions)
    described.offsets.extend(
        _offset(key, committed.get(key), ends.get(key), owners.get(key)) for key in partitions
    )
    if described.topics:
        described.unknown_topics.extend(_unknown(described.topics, cluster.topics()))
    return described


def _unknown(subscribed: Iterable[str], known: Collection[str]) -> Iterable[UnknownTopic]:
    for topic in subscribed:
        if topic not in known:
            nearest = get_close_matches(topic, known, n=1)
            yield UnknownTopic(topic, nearest[0] if nearest else None)


def _offset(
    key: Partition, committed: int | None, end: int | None, owner: MemberReport | None
) -> Offset:
    lag = None if committed is None or end is None else max(0, end - committed)
    if owner is None:
        return Offset(*key, committed, end, lag, None, None, None)
    return Offset(*key, committed, end, lag, owner.member_id, owner.client_id, owner.host)


def _classic(cluster: BrokerCluster, broker: Broker, group_id: str) -> GroupReport | None:
    answer = _ask_described(cluster, broker, group_id, DESCRIBE_GROUPS, range(7))
    # before version 6 a missing group is Dead
    if answer is None or answer.group_state == "Dead":
        return None
    members = [
        MemberReport(
            member.member_id,
            getattr(member, "group_instance_id", None),
            member.client_id,
            member.client_host,
            _assigned(answer.protocol_type, member.member_assignment),
        )
        for member in answer.members
    ]
    topics, waiting = _more_details(answer)
    return GroupReport(
        group_id,
        "classic",
        answer.group_state,
        answer.protocol_type,
        answer.protocol_data,
        broker,
        members,
        [],
        topics,
        waiting=waiting,
    )


def _more_details(answer: Any) -> tuple[list[str], WaitingReport | None]:
    """Return the subscribed topics of a classic group, and what the group waits for.

    groupkeeper sends both as JSON in the group's error message. Other brokers send only the
    subscriptions of the members, and only for a Stable group. Then the topics are read from the
    subscriptions.
    """
    try:
        return list(details_of(answer)["topics"]), waiting_of(answer)
    except (ValueError, TypeError, KeyError):
        pass
    topics: set[str] = set()
    if answer.protocol_type == "consumer":
        for member in answer.members:
            with suppress(ConsumerProtocolError):
                topics.update(subscribed_topics(member.member_metadata))
    return sorted(topics), None


def _consumer(cluster: BrokerCluster, broker: Broker, group_id: str) -> GroupReport | None:
    if not cluster.to(broker.address).serves(CONSUMER_GROUP_DESCRIBE):
        return None
    answer = _ask_described(cluster, broker, group_id, CONSUMER_GROUP_DESCRIBE, range(2))
    if answer is None:
        return None
    topics = {topic for member in answer.members for topic in member.subscribed_topic_names}
    patterns = {getattr(member, "subscribed_topic_regex", None) for member in answer.members}
    members = [
        MemberReport(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            {t.topic_name: sorted(t.partitions) for t in member.assignment.topic_partitions},
        )
        for member in answer.members
    ]
    return GroupReport(
        group_id,
        "consumer",
        answer.group_state,
        "consumer",
        answer.assignor_name,
        broker,
        members,
        [],
        sorted(topics),
        patterns=sorted(filter(None, patterns)),
        waiting=waiting_of(answer),
    )


def _ask_described(
    cluster: BrokerCluster, broker: Broker, group_id: str, api_key: int, versions: range
) -> Any:
    while True:
        answer = cluster.to(broker.address).ask(
            api_key,
            versions,
            groups=[group_id],
            group_ids=[group_id],
            include_authorized_operations=False,
        )
        group = answer.groups[0]
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        if api_key == CONSUMER_GROUP_DESCRIBE and group.error_code == ErrorCode.UNSUPPORTED_VERSION:
            return None  # Kafka lists the API even if the consumer protocol is turned off
        if not group.error_code:
            return group
        cluster.wait_or_raise(group.error_code, f"group {group_id!r}")


def _assigned(protocol_type: str, assignment: bytes) -> dict[str, list[int]]:
    if protocol_type != "consumer" or not assignment:
        return {}
    try:
        given = decode_assignment(assignment).partitions
    except ConsumerProtocolError:
        return {}
    return {topic: sorted(partitions) for topic, partitions in sorted(given.items())}


def _committed(cluster: BrokerCluster, broker: Broker, group_id: str) -> dict[Partition, int]:
    group = Row(group_id=group_id, member_id=None, member_epoch=-1, topics=None)
    while True:
        answer = cluster.to(broker.address).ask(
            # version 10 needs topic ids, which the metadata of an old broker lacks
            OFFSET_FETCH,
            range(2, 10),
            group_id=group_id,
            topics=None,
            groups=[group],
            require_stable=False,
        )
        found = answer.groups[0] if hasattr(answer, "groups") else answer
        if not found.error_code:
            break
        cluster.wait_or_raise(found.error_code, f"offsets of group {group_id!r}")
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in found.topics
        for partition in topic.partitions
        if partition.committed_offset != _NO_OFFSET and not partition.error_code
    }


def _ends(cluster: BrokerCluster, partitions: Collection[Partition]) -> dict[Partition, int]:
    """Return the end offset of each partition, from its leader. Partitions without a leader are
    left out.
    """
    by_leader: dict[Any, dict[str, list[int]]] = {}
    leaders = cluster.leaders(sorted({topic for topic, _ in partitions})) if partitions else {}
    for topic, partition in partitions:
        address = leaders.get((topic, partition))
        if address is not None:
            by_leader.setdefault(address, {}).setdefault(topic, []).append(partition)
    ends: dict[Partition, int] = {}
    for address, topics in by_leader.items():
        answer = cluster.to(address).ask(
            LIST_OFFSETS,
            range(1, 9),
            replica_id=-1,
            isolation_level=0,
            topics=[Row(name=n, partitions=_latest(p)) for n, p in topics.items()],
        )
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    raise ServerError(
                        f"{address}: end of {topic.name} {partition.partition_index}: "
                        f"{error_name(partition.error_code)}"
                    )
                ends[topic.name, partition.partition_index] = partition.offset
    return ends


def _latest(partitions: list[int]) -> list[Row]:
    return [
        Row(partition_index=partition, current_leader_epoch=-1, timestamp=_LATEST)
        for partition in partitions
    ]
