"""One request through its handler, without a server: kio writes the request and reads the reply.

kio's writer and reader are independent of ours, so they check ours. The test decides what the core
answers.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader

from groupkeeper.coordinator.cluster.group_configs import GroupConfigStore
from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.handlers.routes import Routes
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.handlers.session import Session
from groupkeeper.coordinator.handlers.table import ROUTES
from groupkeeper.protocol.frames import read_request_header
from groupkeeper.protocol.last_requests import LastRequests
from groupkeeper.protocol.packing import printed_topic_id
from tests.helpers.wire.raw_client import API_KEYS, encode_request, to_plain

CLIENT_ID = "app-1"
CLIENT_HOST = "/10.0.0.7"
NEW_UUID = uuid.UUID("0123456789abcdef0123456789abcdef")
ORDERS = TopicInfo("orders", printed_topic_id(bytes(range(1, 17))), 3)
ORDERS_UUID = uuid.UUID(bytes=bytes(range(1, 17)))

SAME_LAYOUT = {(8, 0): 2, (8, 1): 2, (9, 0): 1}
"""(API key, version) of a reply that kio does not have -> the version with the same bytes."""


class FakeCoordinator:
    """Records requests. ``answer`` makes the answers at once; without it, the test
    answers later.
    """

    def __init__(self, answer: Callable[[Request], Any] | None = None) -> None:
        self.answer = answer
        self.group_configs = GroupConfigStore(50, CoreLimits())
        self.requests: list[Any] = []
        self.tickets: list[Any] = []

    def submit(self, request: Request, ticket: Any) -> None:
        self.requests.append(request)
        self.tickets.append(ticket)
        if self.answer is not None:
            ticket.resolve(self.answer(request))

    def submit_listing(self, request: Request, taker: Any) -> Callable[[], None]:
        self.submit(request, taker)
        return lambda: None


class FakeTopics:
    """A fixed image of topics, and partition ends that a test may change."""

    def __init__(self, *topics: TopicInfo) -> None:
        self.image = TopicImage.of(*topics)
        self.ends: dict[tuple[str, int], int] = {}

    def end_offset(self, topic_id: str, partition: int) -> int:
        return self.ends.get((topic_id, partition), 0)


class FakeChannel:
    """A connection that records replies. Its timers run when a test calls ``run_timers``."""

    def __init__(self) -> None:
        self.session = Session("PLAINTEXT", CLIENT_HOST.removeprefix("/"))
        self.replies: list[bytes] = []
        self.failures: list[BaseException] = []
        self.refusals: list[str] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def answered(self, exchange: Exchange) -> None:
        assert exchange.reply is not None
        self.replies.append(exchange.reply)

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        self.failures.append(error)

    def end(self, reason: str, error: str) -> None:
        raise AssertionError(error)

    def refused(self, exchange: Exchange, reason: str) -> None:
        self.refusals.append(reason)

    def grew(self, exchange: Exchange, size_bytes: int) -> None:
        exchange.cost_bytes += size_bytes

    def local_address(self) -> tuple[str, int]:
        return ("192.0.2.1", 9092)

    def later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        timer = (delay_s, call)
        self.timers.append(timer)
        return lambda: self.timers.remove(timer)

    def run_timers(self) -> None:
        timers, self.timers = self.timers, []
        for _, call in timers:
            call()


def make_services(answer: Callable[[Request], Any] | None = None, **values: Any) -> Services:
    """Return services with fakes, and one topic."""
    values.setdefault("coordinator", FakeCoordinator(answer))
    values.setdefault("topics", FakeTopics(ORDERS))
    values.setdefault("serves_consumer_groups", True)
    values.setdefault("consumer_assignors", ("uniform", "range"))
    values.setdefault("mint", lambda: NEW_UUID)
    values.setdefault("new_topic_id", lambda: printed_topic_id(NEW_UUID.bytes))
    return Services(**values)


def begin(
    services: Services, api: str, version: int, client_id: str = CLIENT_ID, **values: Any
) -> tuple[Exchange, FakeChannel]:
    """Encode one request, and call its handler."""
    frame = encode_request(api, version, values, 77, client_id)
    return begin_frame(services, frame)


def begin_frame(
    services: Services, frame: bytes, routes: Routes = ROUTES
) -> tuple[Exchange, FakeChannel]:
    """Call the handler of one encoded request."""
    header = read_request_header(frame)
    channel = FakeChannel()
    exchange = Exchange(
        channel,
        header.api_key,
        header.api_version,
        header.correlation_id,
        Client(header.client_id or "", CLIENT_HOST),
        frame,
        header.body_offset,
        LastRequests(),
    )
    routes[header.api_key, header.api_version](exchange, services)
    return exchange, channel


def decode(api: str, version: int, frame: bytes, correlation_id: int = 77) -> dict[str, Any]:
    """Read a reply with kio. Fails if bytes are left over."""
    key = API_KEYS[api]
    schema = load_response_schema(key, SAME_LAYOUT.get((key, version), version))
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    header, size = entity_reader(schema.__header_schema__)(frame[4:], 0)
    assert header.correlation_id == correlation_id
    entity, body_size = entity_reader(schema)(frame[4:], size)
    assert size + body_size == length, "bytes left over"
    plain = to_plain(entity)
    assert isinstance(plain, dict)
    return plain


def ask(
    api: str,
    version: int,
    answer: Callable[[Request], Any] | None = None,
    services: Services | None = None,
    **values: Any,
) -> dict[str, Any]:
    """Send one request that is answered at once. Return the reply. Its first error must be the
    error that the metrics count.
    """
    exchange, channel = begin(services or make_services(answer), api, version, **values)
    assert channel.failures == []
    (reply,) = channel.replies
    decoded = decode(api, version, reply)
    told = next(filter(None, errors_in(decoded)), ErrorCode.NONE)
    assert exchange.error == told, "what the metrics count is not what the client is told"
    return decoded


def errors_in(reply: Any) -> Iterator[int]:
    """Yield the error codes of a decoded reply: its own, then those inside it, in order."""
    if isinstance(reply, dict):
        yield reply.get("error_code", ErrorCode.NONE)
    for part in reply.values() if isinstance(reply, dict) else reply:
        if isinstance(part, dict | list):
            yield from errors_in(part)


def asked(api: str, version: int, **values: Any) -> Any:
    """Send one request without answering it. Return the request of the core."""
    services = make_services()
    begin(services, api, version, **values)
    coordinator = services.coordinator
    assert isinstance(coordinator, FakeCoordinator)
    (request,) = coordinator.requests
    return request


def versions_of(api: str) -> list[int]:
    """Return every version of an API that is served and that kio can write."""
    key = API_KEYS[api]
    dropped = {8: 2, 9: 1}.get(key, 0)
    return [version for served, version in sorted(ROUTES) if served == key and version >= dropped]


def error(code: ErrorCode) -> Callable[[Request], ErrorCode]:
    """Return an ``answer`` that answers every request with this error code, as for a Heartbeat."""
    return lambda _: code
