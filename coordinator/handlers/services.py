"""What handlers need of the rest of the process, as types: tests give them fakes of these."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from coordinator.core.requests import Request
from coordinator.core.topic_image import TopicImage
from coordinator.topics import mint_topic_id


class Resolvable(Protocol):
    """A ticket: takes one answer."""

    def resolve(self, result: Any) -> None:
        """Take the answer; called once."""
        ...


class Coordinator(Protocol):
    """The in-process API, as far as handlers use it (``coordinator.service.GroupCoordinator``)."""

    def submit(self, request: Request, ticket: Resolvable) -> None:
        """Begin a request; the ticket is resolved once, before this returns or later."""
        ...


class TopicSource(Protocol):
    """Topics and their ends (``coordinator.topics.Topics``)."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Given to every handler with every request."""

    coordinator: Coordinator
    topics: TopicSource
    node_id: int = 1
    cluster_id: str = "groupkeeper"
    advertised: Endpoint | None = None
    """None: the address that the client came in on."""
    auto_create_topics: bool = False
    num_partitions: int = 1
    """Partitions of a topic that is created without a number."""
    max_request_elements: int = 20_000
    """Of all arrays of one request; what costs the loop more than an offset counts as several, see
    ``reading``.
    """
    max_reply_bytes: int = 67_108_864
    """A reply that would be longer closes its connection: a request that names the same large group
    thousands of times asks for more than anyone can use."""
    new_topic_id: Callable[[], str] = mint_topic_id
    mint: Callable[[], uuid.UUID] = uuid.uuid4
    """New ids of members and topics: randomness enters here and nowhere else."""
