"""One request of one connection, and its answer. For the core, an exchange is a ticket: the
receiver of an answer.

The core calls ``resolve`` once. The exchange renders the result in the client's version and passes
the bytes to its connection. The connection writes them after the replies of earlier requests. No
coroutine, future or task is needed between a request and its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.handlers.session import Session
from groupkeeper.protocol.codec import request_class, response_writer, write_elements
from groupkeeper.protocol.last_requests import LastRequests
from groupkeeper.protocol.reader import read_entity
from groupkeeper.protocol.versions import ApiKey

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.services import Services

Render: TypeAlias = Callable[[Any, "Exchange"], bytes | None]
"""A function of (result, exchange). It returns the whole reply frame with its length in front, or
None if the reply is sent later."""

NO_THROTTLE_MS: Final = 0
"""How long the client must wait before its next request. It is always 0, because there are no
quotas yet."""

INTERNAL_ERROR = "internal_error"
"""The reason that is logged and counted when a bug of ours closes a connection."""

ELEMENT_WEIGHTS: Final[dict[int, int]] = {
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 2,
    ApiKey.DESCRIBE_CONFIGS: 10,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 10,
    ApiKey.DELETE_TOPICS: 2,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.OFFSET_DELETE: 2,
    ApiKey.METADATA: 2,
}
"""API key -> weight. The number of elements in a request is limited. An element of these APIs
counts as several, because it blocks the loop for longer than others. Measured times:

- a group to alter: 20 us
- a topic to create: 15 us
- a topic by id: up to 8 us
- a member that leaves, and any other element: up to 5 us
"""


class Channel(Protocol):
    """The methods of a connection that an exchange calls."""

    session: Session
    """The client of this connection."""

    def answered(self, exchange: Exchange) -> None:
        """Called when the exchange has its reply. The connection writes it after the replies of
        earlier requests.
        """
        ...

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        """Called when the handler or its renderer raised an exception, which is a bug of ours.
        There is no reply to write.
        """
        ...

    def refused(self, exchange: Exchange, reason: str) -> None:
        """Close the connection without an answer. The close is counted by ``reason``."""
        ...

    def end(self, reason: str, error: str) -> None:
        """Close the connection once all answers are written. The close is counted by ``reason``,
        and ``error`` is logged.
        """
        ...

    def grew(self, exchange: Exchange, size_bytes: int) -> None:
        """Add ``size_bytes`` to the memory that the connection counts for this exchange until the
        exchange is answered.
        """
        ...

    def local_address(self) -> tuple[str, int]:
        """Return the address of this server that the client connected to."""
        ...

    def later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        """Schedule a call after the delay (0: in the next iteration of the event loop). Return a
        function that cancels the call.
        """
        ...


class _Closed:
    """The channel of an exchange whose connection is closed. It discards the answer."""

    session = Session("", "")

    def answered(self, exchange: Exchange) -> None:
        exchange.reply = None

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        pass

    def refused(self, exchange: Exchange, reason: str) -> None:
        pass

    def end(self, reason: str, error: str) -> None:
        pass

    def grew(self, exchange: Exchange, size_bytes: int) -> None:
        pass

    def local_address(self) -> tuple[str, int]:
        return ("", 0)

    def later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        return _do_nothing


_CLOSED = _Closed()


def _do_nothing() -> None:
    pass


def _nobody_listens(_result: Any, _exchange: Exchange) -> bytes:
    return b""


def _not_set(_result: Any, _exchange: Exchange) -> bytes:
    raise AssertionError("a handler submitted without saying how its answer is rendered")


class Exchange:
    """A request that waits for its answer. The connection creates this object from the header of
    the frame.
    """

    __slots__ = (
        "asked",
        "begun_s",
        "blocks",
        "body_at",
        "channel",
        "client",
        "correlation_id",
        "cost_bytes",
        "error",
        "frame",
        "group_id",
        "key",
        "last",
        "on_closed",
        "render",
        "reply",
        "version",
    )

    def __init__(  # noqa: PLR0913 - an object for the header would cost every request
        self,
        channel: Channel,
        key: int,
        version: int,
        correlation_id: int,
        client: Client,
        frame: bytes,
        body_at: int,
        last: LastRequests,
    ) -> None:
        self.channel = channel
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.client = client
        self.frame = frame
        self.body_at = body_at
        """The position of the body in ``frame``."""
        self.last = last
        """The last requests of the connection. With them, handlers recognize a repeated request."""
        self.render: Render = _not_set
        """The function that renders the answer. The handler sets it before it submits the request.
        """
        self.error = 0
        """The first error of the answer, for the metrics."""
        self.blocks = True
        """If True, later requests of the connection do not begin before this one is answered
        (docs/spec/wire.md#frames). Handlers set False for requests that may be pipelined: commits,
        heartbeats, and most OffsetFetches."""
        self.begun_s = 0.0
        """When the request began, by the monotonic clock. 0.0 if it was answered in the same
        iteration of the event loop.
        """
        self.cost_bytes = 0
        """How many bytes the connection counts for this request while it waits."""
        self.asked: Any = None
        """The parts of the request that the renderer needs. The handler sets them."""
        self.reply: bytes | None = None
        """The reply frame, once it is rendered."""
        self.group_id: str | None = None
        """The group whose data may make the answer too large. If this happens, the log names the
        group."""
        self.on_closed: Callable[[], None] | None = None
        """Called when the connection closes before the answer, to cancel work for this request."""

    def read(self, services: Services) -> Any:
        """Return the body of the request as an object of the class that kio (a library of Kafka's
        schemas) has for this API and version.

        The exchange then drops the frame, because a parked join does not need it. For the requests
        of the hot path, handlers call ``protocol.packed`` instead. Raises ProtocolError if the body
        is not valid.
        """
        key, version = self.key, self.version
        max_elements = services.max_request_elements // ELEMENT_WEIGHTS.get(key, 1)
        entity = read_entity(request_class(key, version), self.frame, self.body_at, max_elements)
        self.frame = b""
        return entity

    def write(self, **values: Any) -> bytes:
        """Return the reply in the version of the request. ``values`` has the values of the reply's
        fields.

        Fields that this version does not have are left out.
        """
        values["throttle_time"] = NO_THROTTLE_MS
        return response_writer(self.key, self.version)(self.correlation_id, values)

    def write_part(self, path: str, items: Iterable[Any]) -> bytes:
        """Return the encoded bytes of some elements of an array. ``path`` names the array, such as
        ``topics.partitions``.
        """
        return write_elements(self.key, self.version, path, items)

    def detach(self) -> None:
        """Detach the exchange from its closed connection, so that neither keeps the other in
        memory.

        The core may still answer a detached exchange, because the core keeps the ticket of a parked
        join as long as the member exists. The answer is discarded.
        """
        on_closed, self.on_closed = self.on_closed, None
        if on_closed is not None:
            on_closed()
        self.channel = _CLOSED
        self.render = _nobody_listens
        self.frame = b""
        self.asked = self.reply = None

    @property
    def is_detached(self) -> bool:
        """True if the connection is closed and ``detach`` was called."""
        return self.channel is _CLOSED

    def resolve(self, result: Any) -> None:
        """Render the result and send it. Called once."""
        try:
            reply = self.render(result, self)
        except Exception as error:  # noqa: BLE001 - a bug in rendering must not stop other replies
            self.channel.failed(self, error)
            return
        if reply is not None:  # The same as ``send``, without the cost of a call.
            self.reply = reply
            self.channel.answered(self)

    def abort(self) -> None:
        """Close the connection without an answer: this request caused an exception in the core
        twice (docs/design.md#known-bugs).
        """
        self.channel.refused(self, INTERNAL_ERROR)

    def send(self, reply: bytes) -> None:
        """Send a frame that is already rendered."""
        self.reply = reply
        self.channel.answered(self)
