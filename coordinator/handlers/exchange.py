"""One request of one connection, and its answer: what the core calls a ticket.

Whoever answers calls ``resolve`` once; the exchange renders for the version that the client spoke
and hands the bytes to the connection, which writes them when everything before them was written.
Nothing here awaits, and no future or task stands between a request and its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from groupkeeper.coordinator.core.requests import Client
from groupkeeper.coordinator.handlers.session import Session
from groupkeeper.protocol.codec import request_class, response_writer, write_elements
from groupkeeper.protocol.packed import LastSender
from groupkeeper.protocol.reader import read_entity
from groupkeeper.protocol.versions import ApiKey

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.services import Services

Render: TypeAlias = Callable[[Any, "Exchange"], bytes | None]
"""(result, exchange) -> the whole reply frame, its length in front; None: it is sent later."""

INTERNAL_ERROR = "internal_error"
"""The reason that is logged and counted where a bug of ours closes a connection."""

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
"""How many elements one element counts as, where it holds the loop for longer than the others do
(measured: 20 us a group to alter, 15 us a topic to create, 5 us a member that leaves, up to 8 us a
topic by id, up to 5 us anything else).
"""


class Channel(Protocol):
    """What an exchange needs of the connection that it came in on."""

    session: Session
    """Who speaks on it."""

    def answered(self, exchange: Exchange) -> None:
        """The exchange has its reply: write it as soon as it is its turn."""
        ...

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        """Rendering raised, which is a bug of ours: there is no reply to write."""
        ...

    def refused(self, exchange: Exchange, reason: str) -> None:
        """The exchange must not be answered: its connection ends, counted under the reason."""
        ...

    def grew(self, exchange: Exchange, size_bytes: int) -> None:
        """The exchange holds so many bytes more until it is answered."""
        ...

    def local_address(self) -> tuple[str, int]:
        """The address of ours that the client connected to."""
        ...

    def later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        """Run the call once after the delay (0: in the next turn of the loop); return what cancels
        it.
        """
        ...


class _Closed:
    """The channel of an exchange whose connection is gone: nobody hears the answer."""

    session = Session("", "")

    def answered(self, exchange: Exchange) -> None:
        exchange.reply = None

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        pass

    def refused(self, exchange: Exchange, reason: str) -> None:
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


class Exchange(msgspec.Struct, eq=False):
    """A request that waits for its answer; made of what the header said."""

    channel: Channel
    key: int
    version: int
    correlation_id: int
    client: Client
    frame: bytes
    offset: int
    """Where the body begins in ``frame``."""
    last_sender: LastSender = msgspec.field(default_factory=LastSender)
    """That of its connection."""
    render: Render = _not_set
    """Set by the handler before it submits."""
    asked: Any = None
    """What a renderer needs of the request."""
    throttle_time_ms: int = 0
    """How long the client is asked to wait before its next request; there are no quotas yet."""
    error: int = 0
    """The first error of the answer, for the metrics."""
    reply: bytes | None = None
    """The reply frame once there is one."""
    holds: bool = True
    """While this waits, nothing that follows on its connection is begun (docs/spec/wire.md#frames).
    Handlers clear it for what may be pipelined: commits, plain fetches, heartbeats.
    """
    begun_s: float = 0.0
    """When it was begun, by the monotonic clock; 0.0 where it was answered in the same turn."""
    on_closed: Callable[[], None] | None = None
    """Called when the connection goes while this waits, to let go of what waits only for it."""

    group_id: str | None = None
    """The group that the answer is about, where one group can make it large: for the log."""
    cost_bytes: int = 0
    """What it makes its connection hold while it waits."""

    def read(self, services: Services) -> Any:
        """Read the body as kio's class of its version, and let the frame go: a parked join needs it
        no more. The requests of the hot path are read by ``protocol.packed`` instead.

        Raises ProtocolError.
        """
        key, version = self.key, self.version
        max_elements = services.max_request_elements // ELEMENT_WEIGHTS.get(key, 1)
        entity = read_entity(request_class(key, version), self.frame, self.offset, max_elements)
        self.frame = b""
        return entity

    def write(self, **values: Any) -> bytes:
        """Return the reply from the values of its fields, for the version asked.

        Fields that the version lacks are left out.
        """
        values["throttle_time"] = self.throttle_time_ms
        return response_writer(self.key, self.version)(self.correlation_id, values)

    def write_part(self, path: str, items: Iterable[Any]) -> bytes:
        """Return elements of an array of the reply, such as ``topics.partitions``."""
        return write_elements(self.key, self.version, path, items)

    def let_go(self) -> None:
        """Keep nothing of the request, nor of the connection, which is gone. Whoever answers may
        still do so: the core keeps the ticket of a parked join for as long as its member.
        """
        on_closed, self.on_closed = self.on_closed, None
        if on_closed is not None:
            on_closed()
        self.channel = _CLOSED
        self.render = _nobody_listens
        self.frame = b""
        self.asked = self.reply = None

    def resolve(self, result: Any) -> None:
        """Take the answer. To be called once, by whoever answers."""
        try:
            reply = self.render(result, self)
        except Exception as error:  # noqa: BLE001 - a bug in rendering must not stop other replies
            self.channel.failed(self, error)
            return
        if reply is not None:
            self.send(reply)

    def abort(self) -> None:
        """Close the connection instead of answering: this request met the same bug of ours twice
        (docs/design.md#known-bugs).
        """
        self.channel.refused(self, INTERNAL_ERROR)

    def send(self, reply: bytes) -> None:
        """Answer with a frame that is already rendered."""
        self.reply = reply
        self.channel.answered(self)
