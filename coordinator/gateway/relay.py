"""One client connection of a broker's listener, and its connection to that broker.

The listener is a port of ours, through which clients reach the broker. A request that we answer is
read as a whole and becomes an ``Exchange``, as on our own node, the coordinator. Most other
requests go to the broker as their bytes arrive, and its replies come back in the same way. One
queue has the exchanges, and a ``ReplySlot`` for each request that went to the broker. So replies
leave in the order of the requests.

Bytes wait here only if a peer does not read them. Then we stop reading from the other peer until
they are sent. So one connection holds about ``upstream.window_bytes`` each way, whatever the size
of a frame. The connection reports these bytes to the budget of all connections (``server.budget``).

An error closes these two connections and no others.

This file is long because the order of replies, the flow of bytes and the end of both connections
share one state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from groupkeeper.coordinator.gateway.apis import Treatment
from groupkeeper.coordinator.gateway.client_login import NOT_AUTHENTICATED
from groupkeeper.coordinator.gateway.fed_bytes import Bytes
from groupkeeper.coordinator.gateway.link import BrokerLink
from groupkeeper.coordinator.gateway.relay_login import RelayLogin
from groupkeeper.coordinator.gateway.relay_memory import RelayMemory
from groupkeeper.coordinator.gateway.relay_rules import RelayRules
from groupkeeper.coordinator.gateway.reply_stream import Change, ReplySlot, ReplyStream
from groupkeeper.coordinator.gateway.request_stream import (
    Passed,
    RequestStream,
    WholeRequest,
)
from groupkeeper.coordinator.gateway.traffic import LOST
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.handlers.session import Session
from groupkeeper.coordinator.server.memory import GRAIN_BYTES, REQUEST_BYTES, cost_bytes
from groupkeeper.coordinator.server.stats import (
    FAST_S,
    UPSTREAM_BAD_REPLY,
    UPSTREAM_LOST,
    CloseReason,
)
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import HeaderReader
from groupkeeper.protocol.last_requests import LastRequests
from groupkeeper.protocol.versions import ApiKey

if TYPE_CHECKING:
    import asyncio

    from groupkeeper.coordinator.handlers.routes import Routes
    from groupkeeper.coordinator.server.listener import Listener
    from groupkeeper.coordinator.server.shared import Shared

READ_BYTES: Final = 262_144
"""The largest number of bytes that the loop reads at once."""


class RelayConnection:
    """The connection of one client. It has the methods of ``asyncio.Protocol``, and owns the link:
    the connection to the broker.
    """

    # fmt: off
    __slots__ = (
        "_blocked_by",
        "_client_flows",
        "_closed",
        "_doomed",
        "_headers",
        "_host",
        "_is_blind",
        "_limits",
        "_link",
        "_listener",
        "_login",
        "_merge",
        "_outgoing",
        "_owed",
        "_pending",
        "_reading",
        "_replies",
        "_requests",
        "_room_bytes",
        "_routes",
        "_rules",
        "_scheduled",
        "_services",
        "_shared",
        "_transport",
        "_turning",
        "_unsent",
        "memory",
        "requests",
        "session",
    )
    # fmt: on

    def __init__(self, shared: Shared, listener: Listener, rules: RelayRules) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._listener = listener.name
        self._routes = listener.routes
        self._services = cast("Services", listener.services)
        self._rules = rules
        self._room_bytes = max(rules.window_bytes - READ_BYTES, GRAIN_BYTES)
        """If this many bytes wait for one peer, we do not read from the other peer."""
        self._requests = RequestStream(
            self._treatment, shared.limits.max_frame_bytes, rules.max_passed_bytes
        )
        self._replies = self._new_replies()
        self._headers = HeaderReader(shared.limits.max_frame_bytes)
        self._owed: deque[Exchange | ReplySlot] = deque()
        self._link: BrokerLink | None = None
        login = rules.login()
        self._login = None if login is None else RelayLogin(login, self)
        self._pending: list[tuple[Bytes, ReplySlot | None]] = []
        """The bytes to send when the link is open. If bytes begin a request that gets a reply, they
        have the slot of this reply.
        """
        self._unsent: list[Bytes] = []
        """Bytes for the broker, which ``_flush_link`` writes together."""
        self._outgoing: list[Bytes] = []
        """Bytes for the client, which ``_flush`` writes together."""
        self._blocked_by: Exchange | None = None
        self._merge: Callable[[bytes], None] | None = None
        """Called with the reply of the exchange in ``_blocked_by``, if the broker answers another
        part of that request.
        """
        self._is_blind = False
        """True if a Produce with acks=0 was passed on. If it fails, the broker only closes the
        link.
        """
        self._doomed: str | None = None
        self._closed = self._turning = self._scheduled = False
        self._reading = self._client_flows = True
        self.requests = 0
        """Grows with each request and whenever bytes pass. So the sweep for idle connections sees
        that this one is in use."""
        self.memory = RelayMemory()
        self.memory.waits = self._waits_for_peer

    # --- Called by the event loop -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._host = str(transport.get_extra_info("sockname")[0])
        peername = transport.get_extra_info("peername")
        self.session = Session(self._listener, str(peername[0]) if peername else "unknown")
        refused = self._shared.opened(self)
        if refused is not None:
            self._shared.count_closed(self.session, refused)
            self._closed = True
            transport.close()
            return
        self._transport.set_write_buffer_limits(high=GRAIN_BYTES, low=0)

    def data_received(self, data: bytes) -> None:
        if self._closed or (self._doomed is not None and not self._requests.is_passing):
            return
        shared = self._shared
        begun_s = shared.watch.read_s()
        shared.stats.bytes_in += len(data)
        self._requests.feed(data)
        if shared.turns.is_full:
            self._continue_later()
        if not self._scheduled:
            self._turn()
        self._balance()
        self._spent(begun_s)

    def pause_writing(self) -> None:
        self._client_flows = False
        self._balance()

    def resume_writing(self) -> None:
        self._client_flows = True
        self._continue_later()
        self._balance()
        self._end_if_done()

    def eof_received(self) -> None:
        """Return None: then the transport closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._shared.closed(self)
        self._release()

    # --- Called by the link -----------------------------------------------------------------------

    def link_opened(self) -> None:
        pending, self._pending = self._pending, []
        for data, slot in pending:
            self._send(data, slot)
        self._turn()
        self._balance()

    def link_received(self, data: bytes) -> None:
        if self._closed:
            return
        begun_s = self._shared.watch.read_s()
        self.requests += 1
        try:
            self._replies.feed(data)
            self._hand_on()
        except ProtocolError as error:
            assert self._link is not None
            self._link.target.traffic.failures[error.reason] += 1
            self._fail_link(UPSTREAM_BAD_REPLY, error.message)
            return
        except Exception as error:  # noqa: BLE001 - it must not affect other connections
            self._shared.refusals.bug(self.session.address, -1, -1, error)
            self.abort(CloseReason.INTERNAL_ERROR)
            return
        if self._requests.untaken_bytes and not self._scheduled:
            self._turn()
        self._balance()
        self._end_if_done()
        self._spent(begun_s)

    def link_flows(self) -> None:
        if self._closed:
            return
        if self._link is not None and self._link.is_writable:
            self._turn()
        self._balance()

    def link_lost(self, error: str) -> None:
        """Close the client's connection if a reply is missing, or if the client has logged in.
        Otherwise the next request opens a new link.
        """
        link, self._link = self._link, None
        pending, self._pending = self._pending, []
        if self._closed:
            return
        is_broken = self._replies.owes or self._requests.is_passing or self._is_blind
        # bytes are pending only before it is open
        if link is not None and is_broken and not pending:
            link.target.traffic.failures[LOST] += 1
        login = self._login
        if login is not None and login.is_proving:
            self._fail_link(NOT_AUTHENTICATED, error)
            return
        if login is not None and login.has_begun and not is_broken:
            # Another connection to the broker would not know the client.
            if not self._owed:  # the broker closes idle connections, as we do
                self.abort(CloseReason.IDLE)
                return
            is_broken = True
        if pending and not is_broken and self._answer_offline(pending):
            self._turn()
            self._balance()
            return
        self._replies = self._new_replies()
        if pending or is_broken:
            self._fail_link(UPSTREAM_LOST, error)

    # --- Called by exchanges ----------------------------------------------------------------------

    def answered(self, exchange: Exchange) -> None:
        if self._closed:
            return
        self._shared.stats.answers[exchange.key, exchange.version, exchange.error].count += 1
        assert exchange.reply is not None, "answered without an answer"
        if len(exchange.reply) > self._services.max_reply_bytes:
            exchange.reply = None
            self.refused(exchange, CloseReason.REPLY_TOO_LARGE)
            return
        exchange.cost_bytes = 0
        if exchange.begun_s:
            took_s = self._shared.watch.read_s() - exchange.begun_s
            self._shared.stats.times.add(exchange.key, took_s)
        if exchange is self._blocked_by:
            self._blocked_by = None
            merge, self._merge = self._merge, None
            if merge is not None:
                self._owed.remove(exchange)
                merge(exchange.reply)
        self._write_ready()
        if not self._turning:
            self._flush()
            self._continue_later()  # the caller may be in the middle of answering others
            self._balance()
            self._end_if_done()

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        if not self._closed:
            self._shared.refusals.bug(self.session.address, exchange.key, exchange.version, error)
            self.abort(CloseReason.INTERNAL_ERROR)

    def refused(self, exchange: Exchange, reason: str) -> None:
        if self._closed:
            return
        self._owed.remove(exchange)
        if self._blocked_by is exchange:
            self._blocked_by = self._merge = None
        about = {} if exchange.group_id is None else {"group": exchange.group_id}
        self._refuse(reason, api_key=exchange.key, api_version=exchange.version, **about)

    def end(self, reason: str, error: str) -> None:
        self._refuse(reason, error=error)

    def grew(self, exchange: Exchange, size_bytes: int) -> None:
        exchange.cost_bytes += size_bytes
        self._balance()

    def local_address(self) -> tuple[str, int]:
        """Return the address of our own node, the coordinator, for this client."""
        return self._rules.own(self._host)

    def later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        if delay_s <= 0:
            return self._shared.turns.soon(call)
        return self._shared.loop.call_later(delay_s, call).cancel

    # --- Called by the login ----------------------------------------------------------------------

    def pass_whole(self, frame: bytes, piece: WholeRequest, change: Change | None) -> None:
        correlation_id = int.from_bytes(piece.frame[8:12], "big", signed=True)
        if change is None:
            change = self._rules.change(self._host, piece.key, piece.version)
        slot = ReplySlot(piece.key, piece.version, correlation_id, change)
        self._owed.append(slot)
        self._send(frame, slot)

    def ask(self, frame: bytes, slot: ReplySlot) -> None:
        assert not self._owed, "a question of our own before an earlier answer"
        self._owed.append(slot)
        self._send(frame, slot)

    # --- Called by the server and the budget ------------------------------------------------------

    @property
    def owes(self) -> int:
        return len(self._owed)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def waits_for_us(self) -> bool:
        return bool(self._owed) and self._client_flows

    def idle_reason(self) -> CloseReason:
        if not self._client_flows:
            return CloseReason.NOT_READING
        return CloseReason.INCOMPLETE_FRAME if self._requests.is_incomplete else CloseReason.IDLE

    def force_close(self) -> None:
        self._transport.abort()

    def abort(self, reason: CloseReason) -> None:
        if not self._closed:
            self._shared.count_closed(self.session, reason)
            self._closed = True
            if self._client_flows:
                self._transport.close()
        if not self._client_flows:
            self._transport.abort()
        self._release()

    def stop_reading(self) -> None:
        """Begin no more requests. If a part of a request was passed on, its rest still passes."""
        if self._doomed is None:
            self._doomed = CloseReason.SHUTDOWN
            self._balance()

    def look_at_budget(self) -> None:
        self._balance()

    # --- From the client to us or to the broker ---------------------------------------------------

    def _treatment(self, key: int, version: int) -> Treatment | None:
        if key == ApiKey.API_VERSIONS:
            return Treatment.OURS  # in any version, so that a newer client learns ours
        return self._rules.treatments().get((key, version))

    def _turn(self) -> None:
        """Process the requests that have arrived, up to the limits of one turn (an iteration of the
        event loop).
        """
        if self._turning or self._closed or not self._link_has_room():
            return
        self._turning = True
        try:
            try:
                self._take()
            finally:
                self._flush_link()
                self._flush()
        except ProtocolError as error:
            self._refuse(error.reason, error=error.message)
        except Exception as error:  # noqa: BLE001 - it must not affect other connections
            self._shared.refusals.bug(self.session.address, -1, -1, error)
            self.abort(CloseReason.INTERNAL_ERROR)
        finally:
            self._turning = False

    def _take(self) -> None:
        read_s = self._shared.watch.read_s
        left = self._limits.max_turn_requests
        until_s = read_s() + self._limits.max_turn_s
        while left and self._may_take() and (piece := self._requests.take()) is not None:
            left -= 1
            self.requests += 1
            if isinstance(piece, Passed):
                self._pass(piece)
            else:
                self._begin(piece)
            if read_s() >= until_s:
                left = 0
        if not left and self._requests.untaken_bytes:
            self._continue_later()

    def _may_take(self) -> bool:
        return (
            not self._closed
            and self._blocked_by is None
            and not self._pending
            and not self._waits_for_end_of_link()
            and len(self._owed) < self._limits.max_waiting_requests
            and (self._doomed is None or self._requests.is_passing)
            # Without this, our answers to a client that never reads would fill the memory.
            and (self._client_flows or self._requests.is_passing)
            and (self._login is None or self._login.admits(self._requests.next_key))
        )

    def _waits_for_end_of_link(self) -> bool:
        """Return True if our login on this link expires soon and the broker still owes a reply.

        If the broker owes none, close the link. The next request opens another link.
        """
        link = self._link
        if link is None or not link.is_over or self._requests.is_passing:
            return False
        if self._replies.owes:
            return True
        self._flush_link()
        self._link, self._replies = None, self._new_replies()
        self._is_blind = False
        link.close()
        return False

    def _link_has_room(self) -> bool:
        return self._link is None or self._link.unsent_bytes < self._room_bytes

    def _pass(self, piece: Passed) -> None:
        slot = None
        if not piece.gets_reply:
            self._is_blind = True
        elif piece.key >= 0:
            change = self._rules.change(self._host, piece.key, piece.version)
            slot = ReplySlot(piece.key, piece.version, piece.correlation_id, change)
            self._owed.append(slot)
        self._send(piece.data, slot)

    def _send(self, data: Bytes, slot: ReplySlot | None) -> None:
        """Send bytes to the broker, or begin to connect and send them later."""
        link = self._link
        if link is None:
            link = self._link = self._rules.open_link(self)
        if self._pending or not link.is_open:
            self._pending.append((data, slot))
            return
        if slot is not None:
            self._replies.expect(slot)
        self._unsent.append(data)
        if not self._turning:
            self._flush_link()

    def _flush_link(self) -> None:
        """Write the bytes for the broker, with one system call if the socket accepts them."""
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            if self._link is not None:
                self._link.write(unsent)

    def _begin(self, piece: WholeRequest) -> None:
        if piece.treatment is Treatment.OURS:
            self._serve(piece.frame, self._routes)
        elif piece.treatment is Treatment.REWRITTEN:
            self.pass_whole(piece.frame, piece, None)
        elif piece.treatment is Treatment.LOGIN:
            assert self._login is not None
            self._login.pass_on(piece)
        else:
            ours, theirs, merge = self._rules.divide(self._host, piece)
            if ours is None:
                assert theirs is not None, "a request without a part"
                change = None if merge is None else lambda reply: merge(None, reply)
                self.pass_whole(theirs, piece, change)
                return
            if theirs is not None:
                assert merge is not None, "two replies and nothing that merges them"
                self._merge = lambda mine: self.pass_whole(
                    theirs, piece, lambda reply: merge(mine, reply)
                )
            self._serve(ours, self._routes)

    def _serve(self, frame: bytes, routes: Routes) -> None:
        """Begin a request that we answer. The next request begins after its answer, as in Kafka."""
        begun_s = self._shared.watch.read_s()
        key, version, correlation_id, client_id, offset = self._headers.read(frame)
        client = self.session.client
        if client.client_id != client_id:
            client = self.session.named(client_id)
        exchange = Exchange(
            self, key, version, correlation_id, client, frame, offset, LastRequests()
        )
        exchange.cost_bytes = cost_bytes(len(frame))
        self._owed.append(exchange)
        self._blocked_by = exchange
        try:
            routes[key, version](exchange, self._services)
        except ProtocolError:
            self._owed.remove(exchange)
            self._blocked_by = self._merge = None
            raise
        except Exception as error:  # noqa: BLE001 - it must not affect other connections
            self.failed(exchange, error)
        else:
            if exchange.reply is None:
                exchange.begun_s = begun_s

    def _answer_offline(self, pending: list[tuple[Bytes, ReplySlot | None]]) -> bool:
        """Answer the request that waits for the link, if it needs no broker. Otherwise return
        False.
        """
        (frame, slot), *more = pending
        if slot is None or more or self._owed[-1] is not slot:
            return False
        routes = self._rules.offline
        if (slot.key, slot.version) not in routes:
            return False
        self._owed.pop()
        try:
            self._serve(bytes(frame), routes)
        except ProtocolError as error:
            self._refuse(error.reason, error=error.message)
        return True

    # --- From us and the broker to the client -----------------------------------------------------

    def _hand_on(self) -> None:
        """Write the replies of the broker to the client, after the changes that their slots
        require.
        """
        try:
            while (piece := self._replies.take()) is not None:
                slot, data, is_last = piece
                assert self._owed[0] is slot, "a reply that overtakes an earlier one"
                if slot.change is not None:
                    data = slot.change(bytes(data))
                if data:
                    self._outgoing.append(data)
                if is_last:
                    self._owed.popleft()
                    self._rules.passed(slot.key)
                    self._write_ready()
        finally:
            self._flush()

    def _write_ready(self) -> None:
        """Add our answers to the bytes for the client, up to the first reply that is not ready."""
        owed = self._owed
        while owed and isinstance(first := owed[0], Exchange) and first.reply is not None:
            owed.popleft()
            self._outgoing.append(first.reply)

    def _flush(self) -> None:
        """Write the bytes for the client, with one system call if the socket accepts them."""
        if not self._outgoing:
            return
        outgoing, self._outgoing = self._outgoing, []
        if not self._closed and not self._transport.is_closing():
            self._shared.stats.bytes_out += sum(map(len, outgoing))
            self._transport.writelines(outgoing)

    # --- The flow of bytes ------------------------------------------------------------------------

    def _balance(self) -> None:
        """Read from the client only if the broker accepts the bytes. Read from the broker only if
        the client accepts them. Read from neither if the budget forbids it.
        """
        self._account()
        if self._closed or self._transport.is_closing():
            return
        allowed = self._shared.budget.allows(self)
        if self._link is not None:
            unsent_bytes = 0 if self._client_flows else self._transport.get_write_buffer_size()
            self._link.read(unsent_bytes < self._room_bytes and allowed)
        wanted = (
            (self._doomed is None or self._requests.is_passing)
            and self._requests.untaken_bytes < GRAIN_BYTES
            and self._link_has_room()
            and allowed
        )
        if wanted != self._reading:
            self._reading = wanted
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    def _account(self) -> None:
        held = 0 if self._client_flows else self._transport.get_write_buffer_size()
        if not self._closed:
            held += self._requests.held_bytes + self._replies.held_bytes
            held += sum([len(data) for data, _ in self._pending])
            if self._link is not None and not self._link.is_writable:
                held += self._link.unsent_bytes
            held += REQUEST_BYTES * len(self._owed)
            if self._blocked_by is not None:
                held += self._blocked_by.cost_bytes
        if held < GRAIN_BYTES:
            held = 0
        change = held - self.memory.reported_bytes
        if change > GRAIN_BYTES or change < -GRAIN_BYTES or (change and not held):
            self._shared.budget.count(self, held)

    def _waits_for_peer(self) -> bool:
        if not self._client_flows or (self._link is not None and not self._link.is_writable):
            return True
        return self._requests.is_incomplete and not self._owed

    def _spent(self, begun_s: float) -> None:
        took_s = self._shared.watch.read_s() - begun_s
        if took_s > FAST_S:
            self._shared.turns.spend(took_s)
            self._shared.watch.end(begun_s, self.data_received)

    def _continue_later(self) -> None:
        if not self._scheduled and not self._closed and self._requests.untaken_bytes:
            self._scheduled = True
            self._shared.turns.soon(self._continue)

    def _continue(self) -> None:
        self._scheduled = False
        if not self._closed:
            self._turn()
            self._balance()
            self._end_if_done()

    # --- The end ----------------------------------------------------------------------------------

    def _refuse(self, reason: str, **detail: Any) -> None:
        """Stop reading. Close the connection once earlier requests are answered."""
        if self._doomed is not None or self._closed:
            return
        self._shared.count_closed(self.session, reason, **detail)
        self._doomed = reason
        self._requests.forget()
        self._balance()
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._doomed in (None, CloseReason.SHUTDOWN) or self._owed or self._closed:
            return
        self._closed = True
        self._transport.close()
        self._release()

    def _fail_link(self, reason: str, message: str) -> None:
        """Close both connections at once, because a missing reply will never come."""
        if self._closed:
            return
        self._shared.count_closed(self.session, reason, error=message)
        self._closed = True
        if self._client_flows:
            self._transport.close()
        else:
            self._transport.abort()
        self._release()

    def _release(self) -> None:
        """Close the link, and release everything except bytes that the client may still read.

        Remove the references of waiting exchanges to this connection.
        """
        self._requests.forget()
        self._replies = self._new_replies()
        self._pending, self._unsent, self._outgoing = [], [], []
        self._blocked_by = self._merge = self._login = None
        self.memory.waits = bool
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self._account()
        owed, self._owed = self._owed, deque()
        for each in owed:
            if isinstance(each, Exchange):
                each.detach()

    def _new_replies(self) -> ReplyStream:
        return ReplyStream(self._services.max_reply_bytes, self._rules.max_passed_bytes)
