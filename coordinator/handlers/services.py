"""What handlers need of the rest of the process, as types: tests give them fakes of these."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from groupkeeper.coordinator.cluster.topics import mint_topic_id
from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.cluster.settings import ConfigKind
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.requests import ListGroups, Request
from groupkeeper.coordinator.handlers.unknown_topics import UnknownTopicLog
from groupkeeper.coordinator.runtime.listing import TakesGroups
from groupkeeper.coordinator.runtime.tickets import Ticket


class GroupConfigSource(Protocol):
    """What is set for single groups (``coordinator.cluster.group_configs.GroupConfigStore``)."""

    @property
    def limits(self) -> CoreLimits:
        """What holds for a group that set nothing."""
        ...

    def of(self, group_id: str) -> Mapping[str, str]:
        """What is set for a group, by key."""
        ...

    def groups(self) -> list[str]:
        """The groups that have configs of their own."""
        ...


class Coordinator(Protocol):
    """The in-process API, as far as handlers use it
    (``embed.group_coordinator.GroupCoordinator``)."""

    @property
    def group_configs(self) -> GroupConfigSource:
        """What is set for single groups."""
        ...

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Begin a request; the ticket is resolved once, before this returns or later."""
        ...

    def submit_listing(self, request: ListGroups, taker: TakesGroups) -> Callable[[], None]:
        """Begin a listing of groups, which are taken part by part; return what cancels it."""
        ...


class TopicSource(Protocol):
    """Topics and their ends (``coordinator.cluster.topics.Topics``)."""

    @property
    def image(self) -> TopicImage:
        """All topics now."""
        ...

    def end_offset(self, topic_id: str, partition: int) -> int:
        """The partition's end; 0 where nothing was ever committed."""
        ...


class Endpoint(NamedTuple):
    """Where clients reach a broker."""

    host: str
    port: int


class BrokerConfig(NamedTuple):
    """A setting of this server, under the name that a broker has for it."""

    name: str
    kind: ConfigKind
    value: str
    default: str
    doc: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Given to every handler with every request."""

    coordinator: Coordinator
    topics: TopicSource
    denied: ErrorCode = ErrorCode.NONE
    """What is answered instead of what is asked, if anything: who asks may not (``routes``). The
    coordinator answers with it by itself.
    """
    broker_configs: tuple[BrokerConfig, ...] = ()
    """What DescribeConfigs tells of this server."""
    node_id: int = 1
    cluster_id: str = "groupkeeper"
    advertised: Endpoint | None = None
    """None: the address that the client came in on."""
    auto_create_topics: bool = False
    num_partitions: int = 1
    """Partitions of a topic that is created without a number."""
    max_request_elements: int = 20_000
    """Of all arrays of one request; what costs the loop more than an offset counts as several, see
    ``exchange``.
    """
    max_reply_bytes: int = 67_108_864
    """A reply that would be longer closes its connection: a request that names the same large group
    thousands of times asks for more than anyone can use."""
    unknown_topics: UnknownTopicLog = field(default_factory=UnknownTopicLog)
    new_topic_id: Callable[[], str] = mint_topic_id
    mint: Callable[[], uuid.UUID] = uuid.uuid4
    """New ids of members and topics: randomness enters here and nowhere else."""
