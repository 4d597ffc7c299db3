"""One connection of the Kafka port: requests begin in order, and replies are written in order.

Nothing is awaited here. A request that needs no wait is answered within its ``data_received``, and
all replies of one turn (an iteration of the event loop) leave in one write. A request that waits is
an ``Exchange`` in ``_owed``. Replies leave in the order of that queue, whatever the order in which
they become ready.

Later frames stay in ``_backlog`` in three cases:

- A request that *blocks* is unanswered (JoinGroup, SyncGroup, Fetch...).
- A limit on waiting requests is reached.
- The peer does not read its replies.

At the limits the server stops reading, so a peer slows down only itself. The connection reports the
memory of its frames, requests and replies to the budget of all connections (``budget``).

This file is long because the order of requests, the limits and the end of a connection share one
state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from groupkeeper.coordinator.core.compiling import mypyc_attr
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.handlers.session import Session
from groupkeeper.coordinator.server.limits import LARGE_REPLY_BYTES
from groupkeeper.coordinator.server.listener import PLAINTEXT, Listener
from groupkeeper.coordinator.server.memory import (
    GRAIN_BYTES,
    REQUEST_BYTES,
    UNCOUNTED_BYTES,
    ConnectionMemory,
    cost_bytes,
)
from groupkeeper.coordinator.server.shared import Shared
from groupkeeper.coordinator.server.stats import FAST_S, NOT_ANSWERED, AnswerCount, CloseReason
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import FrameError, FrameSplitter, HeaderReader
from groupkeeper.protocol.last_requests import LastRequests
from groupkeeper.protocol.reader import FREE_BYTES

if TYPE_CHECKING:
    import asyncio

NONE_YET: Final = AnswerCount(0x8000, 0, 0)
"""The counter of a connection that has not answered yet. No request has this API key, because the
key in a header is a signed number of 16 bits."""


@mypyc_attr(allow_interpreted_subclasses=True)  # testkit.faults has one
class Connection:
    """The server's side of one connection.

    It has the methods of ``asyncio.Protocol``, but does not inherit from it: a compiled class may
    only have compiled bases.
    """

    # fmt: off
    __slots__ = (
        "_answers", "_backlog", "_blocked_by", "_closed", "_doomed", "_headers", "_last",
        "_listener", "_out", "_owed", "_read_s", "_reading", "_routes", "_scheduled", "_seconds",
        "_services", "_shared", "_splitter", "_stats", "_transport", "_turning", "_turns",
        "_writable", "memory", "requests", "session",
    )
    # fmt: on

    def __init__(self, shared: Shared, listener: Listener = PLAINTEXT) -> None:
        self._shared = shared
        self._services = listener.services or shared.services
        self._listener = listener.name
        self._routes = listener.routes
        self._stats = shared.stats
        self._answers = NONE_YET  # the counter of the last answer
        self._seconds = shared.stats.times.seconds
        self._read_s = shared.watch.read_s
        self._turns = shared.turns
        self._splitter = FrameSplitter(shared.limits.max_frame_bytes)
        self._headers = HeaderReader(shared.limits.max_frame_bytes)
        self._last = LastRequests()
        self.requests = 0  # the number of requests that have begun
        # ``_backlog``: frames whose request has not begun. ``_owed``: requests whose reply is not
        # written. ``_out``: the replies of the next write. An empty deque would take 760 bytes, and
        # most connections wait for one answer or none.
        self._backlog: list[bytes] = []
        self._owed: list[Exchange] = []
        self._out: list[bytes] = []
        self.memory = ConnectionMemory(self._splitter, self._backlog)
        # The reasons why no request begins.
        self._blocked_by: Exchange | None = None
        self._doomed: str | None = None
        self._closed = self._turning = self._scheduled = False
        self._writable = self._reading = True

    # --- Called by the event loop -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the session of the peer. A connection beyond the limits is closed at once."""
        self._transport = cast("asyncio.Transport", transport)
        peername = transport.get_extra_info("peername")
        address = str(peername[0]) if peername else "unknown"
        self.session = Session(self._listener, address)
        refused = self._shared.opened(self)
        if refused is not None:
            self._shared.count_closed(self.session, refused)
            self._closed = True
            transport.close()
            return
        # low=0: a reply stays whole in memory until its last byte is sent
        self._transport.set_write_buffer_limits(high=GRAIN_BYTES, low=0)

    def data_received(self, data: bytes) -> None:
        """Begin the requests in these bytes. Those beyond the limits of one turn wait."""
        doomed = self._doomed
        if self._closed or doomed is not None:
            return
        begun_s = self._read_s()
        size_bytes = len(data)
        self._stats.bytes_in += size_bytes
        is_busy = self._owed or self._backlog or self._turns.is_full or self._splitter.waiting
        if is_busy or not self._writable or (head := self._headers.read_whole(data)) is None:
            answered_key = NOT_ANSWERED
            self._feed(data)
        else:
            # The common case: one request, with the client id of the last one, and nothing waits.
            self._turning = True
            key, version, correlation_id, offset = head
            client = self.session.client
            exchange = Exchange(
                self, key, version, correlation_id, client, data, offset, self._last
            )
            answered_key = self._serve(exchange, begun_s, size_bytes)
            self._turning = False
            self._flush()
            if self._doomed is not None:
                self._close_when_answered()
        took_s = self._read_s() - begun_s
        self._seconds[answered_key] += took_s
        if took_s > FAST_S:
            self._stats.times.count_slow(answered_key, took_s)
            self._turns.spend(took_s)
            self._shared.watch.end(begun_s, self.data_received)

    def _feed(self, data: bytes) -> None:
        try:
            self._queue(self._splitter.feed(data))
        except FrameError as error:
            self._queue(error.frames)
            self._turn()  # begin whole frames, up to the limits of one turn
            self._refuse(error.reason, error=error.message)

    def _queue(self, frames: list[bytes]) -> None:
        if frames:
            self._backlog.extend(frames)
            for frame in frames:
                self.memory.backlog_bytes += len(frame)
            if self._turns.is_full:
                self._continue_later()
            if self._scheduled:  # they begin in a later turn
                self._balance()
            else:
                self._turn()
        self._account()

    def pause_writing(self) -> None:
        """Begin no more requests until the peer reads its replies."""
        self._writable = False
        self._balance()

    def resume_writing(self) -> None:
        """Continue after the peer has read its replies."""
        self._writable = True
        self.memory.unsent_bytes = 0
        self._account()
        self._continue_later()
        self._balance()

    def eof_received(self) -> None:
        """Let the transport close itself, as ``asyncio.Protocol`` does."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop all requests and replies. Members stay until their sessions expire
        (docs/spec/wire.md#disconnects).
        """
        self._closed = True
        self.memory.unsent_bytes = 0
        self._shared.closed(self)
        self._release()

    # --- Called by exchanges ----------------------------------------------------------------------

    def answered(self, exchange: Exchange) -> None:
        """Write the reply as soon as all earlier replies are written. Then write the later replies
        that are ready.
        """
        if self._closed:
            return
        answers = self._answers
        if (
            exchange.key != answers.key
            or exchange.version != answers.version
            or exchange.error != answers.error
        ):
            answers = self._stats.answers[exchange.key, exchange.version, exchange.error]
            self._answers = answers
        answers.count += 1
        owed = self._owed
        if exchange is self._blocked_by:
            self._blocked_by = None
        reply = exchange.reply
        assert reply is not None, "answered without an answer"
        if len(reply) > LARGE_REPLY_BYTES and len(reply) > self._services.max_reply_bytes:
            exchange.reply = None
            self.refused(exchange, CloseReason.REPLY_TOO_LARGE)
            return
        if exchange.begun_s or exchange.cost_bytes:
            self._waited(exchange)
        if owed[0] is not exchange:
            self.memory.stored_bytes += len(reply)
            if len(reply) > GRAIN_BYTES or self.memory.stored_bytes > self.memory.report_above:
                self._account()
            return
        del owed[0]
        is_first = not self._out
        self._out.append(reply)
        while owed and (reply := owed[0].reply) is not None:
            del owed[0]
            self.memory.stored_bytes -= len(reply)
            self.memory.report_below = self.memory.owed_bytes + 1  # so that ``_write_soon`` reports
            self._out.append(reply)
        if not self._turning:
            self._write_soon(is_first)

    def _write_soon(self, is_first: bool) -> None:
        """Write now if no other reply is owed, otherwise in the next iteration of the event loop.

        An append often answers several requests. Their replies then leave in one write.
        """
        memory, owed = self.memory, self._owed
        if not owed:
            self._flush()
        elif is_first:
            self._shared.loop.call_soon(self._flush)
        if memory.reported_bytes and (memory.owed_bytes < memory.report_below or not owed):
            self._account()
        # Begin waiting requests in a later turn: the caller may still have other replies to send.
        self._continue_later()

    def _waited(self, exchange: Exchange) -> None:
        """Count the time of a request that waited and now has its answer. Release its memory from
        the budget.
        """
        self.memory.owed_bytes -= exchange.cost_bytes
        exchange.cost_bytes = 0
        if exchange.begun_s:
            times, took_s = self._stats.times, self._read_s() - exchange.begun_s
            times.seconds[exchange.key] += took_s
            if took_s > FAST_S:
                times.count_slow(exchange.key, took_s)

    def failed(self, exchange: Exchange, error: BaseException) -> None:
        """Log a bug of ours that prevented the reply, and close the connection."""
        if self._closed:
            return
        self._shared.refusals.bug(self.session.address, exchange.key, exchange.version, error)
        self.abort(CloseReason.INTERNAL_ERROR)

    def refused(self, exchange: Exchange, reason: str) -> None:
        """Close the connection without an answer to this request. Earlier requests are still
        answered.
        """
        self._drop(exchange)
        about = {} if exchange.group_id is None else {"group": exchange.group_id}
        self._refuse(reason, api_key=exchange.key, api_version=exchange.version, **about)

    def end(self, reason: str, error: str) -> None:
        """Begin no more requests. Close the connection once earlier ones are answered."""
        self._refuse(reason, error=error)

    def grew(self, exchange: Exchange, size_bytes: int) -> None:
        """Count ``size_bytes`` for the exchange: one part of its answer waits in memory for the
        other parts.
        """
        if not self._closed:
            self._owe(exchange, size_bytes)

    def local_address(self) -> tuple[str, int]:
        """Return the address of this server that the client connected to."""
        sockname = self._transport.get_extra_info("sockname")
        return (str(sockname[0]), int(sockname[1]))

    def later(self, delay_s: float, call: Callable[[], None]) -> Callable[[], None]:
        """Run the call once after the delay (0: in a later turn). Return a function that cancels
        it.
        """
        if delay_s <= 0:
            return self._turns.soon(call)
        return self._shared.loop.call_later(delay_s, call).cancel

    # --- Called by the server -------------------------------------------------------------------

    @property
    def owes(self) -> int:
        return len(self._owed)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def waits_for_us(self) -> bool:
        return bool(self._owed) and self._writable

    def idle_reason(self) -> CloseReason:
        if not self._writable:
            return CloseReason.NOT_READING
        return CloseReason.INCOMPLETE_FRAME if self._splitter.waiting_bytes else CloseReason.IDLE

    def force_close(self) -> None:
        self._transport.abort()

    def abort(self, reason: CloseReason) -> None:
        """Close at once, and drop the replies owed. Written bytes are sent if the peer reads."""
        if not self._closed:
            self._shared.count_closed(self.session, reason)
            self._flush()
            self._closed = True
            if self._writable:
                self._transport.close()
        if not self._writable:
            self.memory.unsent_bytes = 0
            self._transport.abort()
        self._release()

    def stop_reading(self) -> None:
        """Begin no more requests, and drop those that have not begun. Used at a shutdown."""
        if self._doomed is None:
            self._doomed = CloseReason.SHUTDOWN
            self.memory.forget_frames()
            self._balance()
            self._account()

    # --- Called by the budget ---------------------------------------------------------------------

    def look_at_budget(self) -> None:
        self._balance()

    # --- Our own ----------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Begin the requests that may begin now, up to the limits of one turn, then write the
        replies.
        """
        if self._turning:
            return
        self._turning = True
        limits = self._shared.limits
        left = limits.max_turn_requests
        bytes_left = limits.max_turn_bytes
        backlog, out = self._backlog, self._out
        read_s, add_time = self._read_s, self._stats.times.add
        until_s = read_s() + limits.max_turn_s
        begun = 0
        while (
            begun < len(backlog)
            and left
            and bytes_left > 0
            and self._blocked_by is None
            and self._writable
            and not self._closed
            and len(self._owed) < limits.max_waiting_requests
            and self.memory.stored_bytes < limits.max_waiting_bytes
        ):
            left -= 1
            frame = backlog[begun]
            begun += 1
            bytes_left -= len(frame)
            self.memory.backlog_bytes -= len(frame)
            answered = len(out)
            begun_s = read_s()
            key = self._begin(frame, begun_s)
            ended_s = read_s()
            add_time(key, ended_s - begun_s)
            if len(out) > answered:
                bytes_left -= len(out[-1])
            if ended_s >= until_s:
                left = 0
        del backlog[:begun]
        if backlog and (not left or bytes_left <= 0):
            self._continue_later()
        if backlog or not self._reading:
            self._balance()
        self._end_turn()

    def _end_turn(self) -> None:
        """Write the replies of this turn in one piece. Close the connection if it was refused."""
        self._turning = False
        self._flush()
        if self._doomed is not None:
            self._close_when_answered()

    def _begin(self, frame: bytes, begun_s: float) -> int:
        """Begin a request. Return its API key if it was answered at once, else NOT_ANSWERED."""
        try:
            key, version, correlation_id, client_id, offset = self._headers.read(frame)
        except ProtocolError as error:
            self._refuse(error.reason, error=error.message)
            return NOT_ANSWERED
        client = self.session.client
        if client.client_id != client_id:
            client = self.session.named(client_id)
        # Of a large frame, no request is remembered: the longer its header is, the fewer elements
        # its body may have. So an equal body may have another answer.
        last = self._last if len(frame) <= FREE_BYTES else LastRequests()
        exchange = Exchange(self, key, version, correlation_id, client, frame, offset, last)
        return self._serve(exchange, begun_s, len(frame))

    def _serve(self, exchange: Exchange, begun_s: float, size_bytes: int) -> int:
        """Pass a request to its handler. Return its API key if it was answered at once, else
        NOT_ANSWERED.
        """
        self.requests += 1
        self._owed.append(exchange)
        try:
            self._routes[exchange.key, exchange.version](exchange, self._services)
        except ProtocolError as error:
            self._drop(exchange)
            api = {"api_key": exchange.key, "api_version": exchange.version}
            self._refuse(error.reason, **api, error=error.message)
        except Exception as error:  # noqa: BLE001 - it must not affect other connections
            self.failed(exchange, error)
        else:
            if exchange.reply is not None:
                return exchange.key
            exchange.begun_s = begun_s
            if self._doomed is None:
                if exchange.blocks:
                    self._blocked_by = exchange
                if size_bytes + REQUEST_BYTES * len(self._owed) > UNCOUNTED_BYTES:
                    self._owe(exchange, cost_bytes(size_bytes))
        return NOT_ANSWERED

    def _owe(self, exchange: Exchange, size_bytes: int) -> None:
        exchange.cost_bytes += size_bytes
        self.memory.owed_bytes += size_bytes
        if self.memory.owed_bytes > self.memory.report_above:
            self._account()

    def _drop(self, exchange: Exchange) -> None:
        """Remove an exchange that will not be answered."""
        self._owed.remove(exchange)
        self.memory.owed_bytes -= exchange.cost_bytes
        exchange.cost_bytes = 0
        if self._blocked_by is exchange:
            self._blocked_by = None

    def _refuse(self, reason: str, **detail: Any) -> None:
        """Stop reading. Close the connection once earlier requests are answered."""
        if self._doomed is not None or self._closed:
            return
        self._shared.count_closed(self.session, reason, **detail)
        self._doomed = reason
        self.memory.forget_frames()
        self._splitter.forget()
        if not self._turning:
            self._close_when_answered()

    def _close_when_answered(self) -> None:
        self._balance()
        if self._doomed is CloseReason.SHUTDOWN or self._owed or self._closed:
            return
        self._flush()
        self._closed = True
        self._transport.close()
        self._release()

    def _continue_later(self) -> None:
        if self._scheduled or self._closed or not (self._backlog or self._doomed is not None):
            if not self._reading:
                self._balance()
            return
        self._scheduled = True
        self._turns.soon(self._continue)

    def _continue(self) -> None:
        self._scheduled = False
        if not self._closed:
            self._turn()
            self._account()

    def _flush(self) -> None:
        out = self._out
        if not out or self._closed:
            return
        if len(out) == 1:
            data = out.pop()
        else:
            data = b"".join(out)
            out.clear()
        self._stats.bytes_out += len(data)
        self._transport.write(data)
        if not self._writable:
            self.memory.unsent_bytes += len(data)
            self._account()

    def _account(self) -> None:
        """Report the memory of this connection to the budget, unless the change is small."""
        held_bytes = self.memory.report(self._closed)
        if held_bytes is not None:
            self._shared.budget.count(self, held_bytes)

    def _release(self) -> None:
        """Release everything except bytes that the peer may still read.

        No reference cycle must stay, because it would keep the memory until the garbage collector
        runs.
        """
        self.memory.forget_frames()
        self._splitter.forget()
        self._out.clear()
        self._blocked_by = None
        self._account()
        owed, self._owed = self._owed, []
        for exchange in owed:
            exchange.detach()

    def _balance(self) -> None:
        """Read only if there is room for more frames and the budget allows it."""
        limits = self._shared.limits
        wanted = (
            self._doomed is None
            and self._writable
            and self.memory.backlog_bytes < limits.max_waiting_bytes
            and len(self._backlog) < limits.max_waiting_requests
            and self._shared.budget.allows(self)
        )
        if wanted == self._reading or self._closed:
            return
        self._reading = wanted
        (self._transport.resume_reading if wanted else self._transport.pause_reading)()
