"""The types that handlers need from the rest of the process. Tests replace them with fakes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from groupkeeper.coordinator.cluster.group_configs import GroupConfigStore
from groupkeeper.coordinator.cluster.topics import Topics, mint_topic_id
from groupkeeper.coordinator.core.cluster.group_configs import ConfigKind
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import ListGroups
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.handlers.unknown_topics import UnknownTopicLog
from groupkeeper.coordinator.runtime.listing import GroupsTicket
from groupkeeper.coordinator.runtime.tickets import Ticket


class Coordinator(Protocol):
    """The part of the in-process API that handlers use
    (``embed.group_coordinator.GroupCoordinator``).
    """

    @property
    def group_configs(self) -> GroupConfigStore:
        """The configs that administrators have set for groups."""
        ...

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Submit a request. The ticket is resolved once, before this returns or later."""
        ...

    def submit_listing(self, request: ListGroups, ticket: GroupsTicket) -> Callable[[], None]:
        """Start a listing of groups. They are passed on in parts. Return a function that cancels
        it.
        """
        ...


def _no_patterns(_pattern: str) -> str | None:
    return "Patterns of topic names are not served here."


class Endpoint(NamedTuple):
    """The address of a broker for clients."""

    host: str
    port: int


class BrokerConfig(NamedTuple):
    """A setting of this server, under a broker's name for it."""

    name: str
    kind: ConfigKind
    value: str
    default: str
    doc: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services and settings that every handler gets with every request."""

    coordinator: Coordinator
    topics: Topics
    denied: ErrorCode = ErrorCode.NONE
    """The error for a client without permission (``routes``), else NONE. Handlers answer with it
    and do not process the request. The coordinator of a denied client also returns it.
    """
    broker_configs: tuple[BrokerConfig, ...] = ()
    """The configs of this server, for DescribeConfigs."""
    node_id: int = 1
    cluster_id: str = "groupkeeper"
    advertised: Endpoint | None = None
    """The address for clients; None: the one that the client connected to."""
    serves_consumer_groups: bool = True
    """If False, requests of consumer groups are answered with UNSUPPORTED_VERSION."""
    consumer_assignors: tuple[str, ...] = ()
    """The assignors that members of consumer groups may name."""
    pattern_error: Callable[[str], str | None] = _no_patterns
    """Returns why a pattern of topic names does not compile, or None."""
    auto_create_topics: bool = False
    num_partitions: int = 1
    """Partitions of a topic that is created without a number."""
    max_request_elements: int = 20_000
    """The elements in all arrays of one request. An element that costs the loop more than an offset
    counts as several (``exchange``).
    """
    max_reply_bytes: int = 67_108_864
    """A longer reply closes its connection. A request that names the same large group thousands of
    times asks for more than any client can use.
    """
    unknown_topics: UnknownTopicLog = field(default_factory=UnknownTopicLog)
    new_topic_id: Callable[[], str] = mint_topic_id
    mint: Callable[[], uuid.UUID] = uuid.uuid4
    """Generates ids of members and topics. Randomness enters here and nowhere else."""
