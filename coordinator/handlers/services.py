"""The types that handlers need from the rest of the process. Tests replace them with fakes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from groupkeeper.coordinator.cluster.group_configs import GroupConfigStore
from groupkeeper.coordinator.cluster.topics import Topics, mint_topic_id
from groupkeeper.coordinator.core.cluster.group_configs import ConfigKind
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import ListGroups
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.handlers.offer import OURS, Offer
from groupkeeper.coordinator.handlers.unknown_topics import UnknownTopicLog
from groupkeeper.coordinator.runtime.listing import GroupsTicket
from groupkeeper.coordinator.runtime.tickets import Ticket


class Coordinator(Protocol):
    """The methods of the coordinator that handlers use (``embed.router.Router``)."""

    @property
    def group_configs(self) -> GroupConfigStore:
        """The configs that administrators have set for groups."""
        ...

    def submit(self, request: Request, ticket: Ticket) -> None:
        """Submit a request. The ticket gets the answer once, before this returns or later."""
        ...

    def submit_listing(self, request: ListGroups, ticket: GroupsTicket) -> Callable[[], None]:
        """Start a listing of groups. The ticket gets the groups in parts. Return a function that
        cancels the listing.
        """
        ...


def _no_patterns(_pattern: str) -> str | None:
    return "Patterns of topic names are not served here."


def _our_offer() -> Offer:
    return OURS


class Endpoint(NamedTuple):
    """The address of a broker for clients."""

    host: str
    port: int


class BrokerConfig(NamedTuple):
    """A setting of this server, under the name that Kafka's brokers have for it."""

    name: str
    kind: ConfigKind
    value: str
    default: str
    doc: str = ""


def _no_brokers(_host: str) -> Mapping[int, Endpoint]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services and settings that every handler gets with every request."""

    coordinator: Coordinator
    topics: Topics
    denied: ErrorCode = ErrorCode.NONE
    """The error for a client without permission (``routes``); otherwise NONE. If there is an error,
    handlers answer with it and do not process the request. Calls of ``coordinator`` then return
    this error too."""
    broker_configs: tuple[BrokerConfig, ...] = ()
    """The settings of this server that DescribeConfigs shows."""
    node_id: int = 1
    cluster_id: str = "groupkeeper"
    advertised: Endpoint | None = None
    """The address of this server for clients. None: the address that the client connected to."""
    offer: Callable[[], Offer] = _our_offer
    """A function that returns the APIs and features that the listener offers now."""
    leads: bool = True
    """True if this server is the leader of every partition. False if it knows no leaders: they are
    brokers of another cluster that does not answer (gateway mode)."""
    other_brokers: Callable[[str], Mapping[int, Endpoint]] = _no_brokers
    """A function that returns the other brokers that Metadata lists, by id. Its argument is the
    address of this server that the client connected to."""
    serves_consumer_groups: bool = True
    """If False, requests of consumer groups are answered with UNSUPPORTED_VERSION."""
    consumer_assignors: tuple[str, ...] = ()
    """The assignors that members of consumer groups may name."""
    pattern_error: Callable[[str], str | None] = _no_patterns
    """A function that returns the reason why a pattern of topic names cannot be used; None if it
    can be used."""
    auto_create_topics: bool = False
    num_partitions: int = 1
    """The number of partitions of a topic that is created without a number."""
    max_request_elements: int = 20_000
    """The largest number of elements in all arrays of one request. An element that blocks the loop
    for longer than an offset counts as several (``exchange``)."""
    max_reply_bytes: int = 67_108_864
    """The longest reply. A longer one closes its connection. Without this limit, a request that
    names one large group thousands of times would get a reply that no client can use."""
    unknown_topics: UnknownTopicLog = field(default_factory=UnknownTopicLog)
    new_topic_id: Callable[[], str] = mint_topic_id
    mint: Callable[[], uuid.UUID] = uuid.uuid4
    """A function that returns a new UUID, for the ids of members and of offsets in transactions.
    ``new_topic_id`` makes the ids of topics."""
