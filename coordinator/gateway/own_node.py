"""Our own node in gateway mode: the coordinator of every group, and the leader of no partition.

It answers requests about groups itself. It sends other requests to a broker of the upstream, the
Kafka cluster behind the gateway, and rewrites the answer. Each client connection has its own link
(connection) to a broker, because a broker may know the client by its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from groupkeeper.coordinator.gateway.addresses import Addresses
from groupkeeper.coordinator.gateway.apis import SASL_HANDSHAKE
from groupkeeper.coordinator.gateway.client_login import (
    AUTHENTICATION_FAILED,
    NOT_AUTHENTICATED,
    ClientLogin,
    Permit,
    no_login,
)
from groupkeeper.coordinator.gateway.link import BrokerLink, LinkOwner
from groupkeeper.coordinator.gateway.reply_stream import Change, ReplySlot, ReplyStream
from groupkeeper.coordinator.gateway.rewriting import rewrite
from groupkeeper.coordinator.gateway.traffic import LOST
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.handlers.routes import Handle
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.server.stats import UPSTREAM_BAD_REPLY, UPSTREAM_LOST
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.versions import ApiKey

_READS: Final = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.LIST_CONFIG_RESOURCES,
        75,  # DescribeTopicPartitions
    }
)
"""APIs that change nothing. If a broker fails, such a request is sent to another broker."""


class Asking(NamedTuple):
    """The objects and functions with which ``OwnNodeRequests`` asks a broker."""

    link: Callable[[LinkOwner, frozenset[int]], BrokerLink | None]
    """Connects to a broker. The set has the ids of the brokers that have failed for the present
    request: the link leads to none of these. Returns None if every broker is in the set."""
    addresses: Addresses
    offline: Callable[[int, int], Handle | None]
    """Returns the handler that answers this API key and version if no broker can be reached. None
    if we cannot answer it without a broker.
    """
    answered: Callable[[int], None]
    """Called with the API key of each request that a broker has answered."""
    max_reply_bytes: int
    login: Callable[[], ClientLogin | None] = no_login
    """Returns a new ``ClientLogin`` for a client connection. Returns None if clients need not log
    in.
    """


class OwnNodeRequests:
    """Sends the requests of one client connection to a broker, one at a time."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._link: BrokerLink | None = None
        self._replies = self._new_replies()
        self._exchange: Exchange | None = None
        self._services: Services
        self._frame = b""
        self._change: Change | None = None
        self._failed: frozenset[int] = frozenset()
        self._was_sent = False
        """True after the present request was sent, until the next call of ``ask``."""
        self._login = asking.login()
        self._proven: Handle | None = None
        """The handler of a request that waits until the broker proves who the client is."""

    def ask(
        self, exchange: Exchange, services: Services, frame: bytes, change: Change | None
    ) -> None:
        """Send ``frame`` to the broker. Answer the exchange with the reply. If ``change`` is not
        None, it converts the reply first.
        """
        assert self._exchange is None, "an exchange that did not block"
        self._exchange, self._services = exchange, services
        self._frame, self._change = frame, change
        self._failed, self._was_sent = frozenset(), False
        exchange.on_closed = self._closed
        self._try()

    def admit(self, exchange: Exchange, services: Services, handle: Handle) -> None:
        """Serve a request if the client is authenticated. If this is not known yet, ask the broker
        first.

        Raises ProtocolError if the client is not authenticated, or if its session has expired.
        """
        login = self._login
        assert login is not None, "clients are not asked who they are"
        permit = login.permit(exchange.key)
        assert permit is not Permit.LATER, "an exchange that did not block"
        if permit is Permit.GRANTED:
            handle(exchange, services)
            return
        self._proven = handle
        self.ask(exchange, services, login.proof(exchange.correlation_id), login.proved)

    def log_in(self, exchange: Exchange, services: Services) -> None:
        """Pass a SaslHandshake or SaslAuthenticate to the broker. Raises ProtocolError if the
        request cannot be read.
        """
        login, version = self._login, exchange.version
        assert login is not None, "clients are not asked who they are"
        assert login.permit(exchange.key) is Permit.GRANTED, "an exchange that did not block"
        if self._link is None or not self._link.is_open:
            login.restart()
        frame = login.ask(exchange.key, version, exchange.frame)
        self.ask(exchange, services, frame, lambda reply: login.answered(version, reply))

    def close(self) -> None:
        """Close the connection to the broker. Called when the client's connection has ended."""
        self._exchange = None
        self._drop()

    # --- Called by the link -----------------------------------------------------------------------

    def link_opened(self) -> None:
        if self._exchange is not None:
            self._send()

    def link_received(self, data: bytes) -> None:
        exchange, link = self._exchange, self._link
        assert link is not None
        try:
            self._replies.feed(data)
            held = self._replies.held_bytes
            piece = self._replies.take()
            if piece is None:
                if exchange is not None:
                    exchange.channel.grew(exchange, max(held - exchange.cost_bytes, 0))
                return
            assert exchange is not None
            assert piece.is_last
            reply = bytes(piece.data) if self._change is None else self._change(bytes(piece.data))
        except ProtocolError as error:
            link.target.traffic.failures[error.reason] += 1
            self._drop()
            if exchange is not None:
                self._refuse(UPSTREAM_BAD_REPLY)
            return
        login, proven, services = self._login, self._proven, self._services
        self._done()
        if login is None or proven is None:
            self._asking.answered(exchange.key)
            exchange.send(reply)
            if login is not None and login.failure:
                exchange.channel.end(AUTHENTICATION_FAILED, login.failure)
        elif login.failure:
            exchange.channel.refused(exchange, AUTHENTICATION_FAILED)
        else:
            _serve_as(login.principal, exchange, services, proven)

    def link_flows(self) -> None:
        pass

    def link_lost(self, error: str) -> None:
        link, self._link = self._link, None
        if link is not None and self._replies.owes:
            link.target.traffic.failures[LOST] += 1
        self._replies = self._new_replies()
        exchange = self._exchange
        if exchange is None or link is None:
            return
        if self._login is not None and self._login.is_proving:
            self._refuse(NOT_AUTHENTICATED)
            return
        self._failed |= {link.target.broker_id}
        if self._was_sent and exchange.key not in _READS:
            self._refuse(UPSTREAM_LOST)
        else:
            self._try()

    # --- Sending, and the end of a request --------------------------------------------------------

    def _try(self) -> None:
        if self._link is not None and self._link.is_over:
            self._drop()
        if self._link is not None and self._link.is_open:
            self._send()
            return
        exchange = self._exchange
        assert exchange is not None
        if self._login is not None and exchange.key != SASL_HANDSHAKE:
            self._refuse(UPSTREAM_LOST)  # another broker would not know the client
            return
        self._link = self._asking.link(self, self._failed)
        if self._link is None:
            self._answer_offline()

    def _send(self) -> None:
        exchange, link = self._exchange, self._link
        assert exchange is not None
        assert link is not None
        self._replies.expect(
            ReplySlot(exchange.key, exchange.version, exchange.correlation_id, _as_it_is)
        )
        self._was_sent = True
        link.write((self._frame,))

    def _answer_offline(self) -> None:
        exchange = self._exchange
        assert exchange is not None
        handle = self._asking.offline(exchange.key, exchange.version)
        if handle is None:
            self._refuse(UPSTREAM_LOST)
            return
        services = self._services
        self._done()
        _serve(exchange, services, handle)

    def _done(self) -> None:
        exchange, self._exchange = self._exchange, None
        self._frame, self._change = b"", None
        self._proven = None
        if exchange is not None:
            exchange.on_closed = None

    def _refuse(self, reason: str) -> None:
        exchange = self._exchange
        self._done()
        if exchange is not None:
            exchange.channel.refused(exchange, reason)

    def _closed(self) -> None:
        self._exchange = None
        self._drop()

    def _drop(self) -> None:
        link, self._link = self._link, None
        self._replies = self._new_replies()
        if link is not None:
            link.close()

    def _new_replies(self) -> ReplyStream:
        return ReplyStream(self._asking.max_reply_bytes, self._asking.max_reply_bytes)


def _as_it_is(reply: bytes) -> bytes:
    return reply


def _serve_as(principal: str, exchange: Exchange, services: Services, handle: Handle) -> None:
    """Begin a request whose client has been authenticated since the request arrived."""
    session = exchange.channel.session
    session.principal = principal
    exchange.client = session.named(exchange.client.client_id)
    _serve(exchange, services, handle)


def _serve(exchange: Exchange, services: Services, handle: Handle) -> None:
    """Call the handler of a request that has waited. If the call fails, close the connection."""
    try:
        handle(exchange, services)
    except ProtocolError as error:
        exchange.channel.refused(exchange, error.reason)
    except Exception as error:  # noqa: BLE001 - it must not affect other connections
        exchange.channel.failed(exchange, error)


class OwnNode:
    """Handles the requests to our own node that only a broker can answer. It asks a broker, and
    passes the answer on to the client.
    """

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._asked: dict[object, OwnNodeRequests] = {}

    def forward(self, exchange: Exchange, services: Services, frame: bytes | None = None) -> None:
        """Answer a request with the reply of a broker. ``frame`` replaces the client's request."""
        host = exchange.channel.local_address()[0]
        view = self._asking.addresses.view(host)
        key, version = exchange.key, exchange.version
        self.ask(
            exchange,
            services,
            exchange.frame if frame is None else frame,
            lambda reply: rewrite(key, version, reply, view),
        )

    def ask(
        self, exchange: Exchange, services: Services, frame: bytes, change: Change | None
    ) -> None:
        """Send ``frame`` over the link of this client to a broker. Answer the exchange with the
        reply. If ``change`` is not None, it converts the reply first.
        """
        self._of(exchange).ask(exchange, services, frame, change)

    def log_in(self, exchange: Exchange, services: Services) -> None:
        """Let a broker authenticate the client (``upstream.identity = "client"``)."""
        self._of(exchange).log_in(exchange, services)

    def authenticated(self, handle: Handle) -> Handle:
        """Return a handler that serves only clients that a broker has authenticated."""

        def admit(exchange: Exchange, services: Services) -> None:
            self._of(exchange).admit(exchange, services, handle)

        return admit

    def _of(self, exchange: Exchange) -> OwnNodeRequests:
        session = exchange.channel.session
        asked = self._asked.get(session)
        if asked is None:
            asked = self._asked[session] = OwnNodeRequests(self._asking)
            session.on_end = lambda: self._ended(session)
        return asked

    def _ended(self, session: object) -> None:
        asked = self._asked.pop(session, None)
        if asked is not None:
            asked.close()
