"""How clients reach a process: by calls of the in-process API, or over a connection of the real
Kafka port. The bytes of the latter arrive in pieces, late, or not at all.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from groupkeeper.coordinator.server.connection import Connection
from tests.simulation.client_codec import MANY_GROUPS, Versions, correlation_id_of, decode, encode

if TYPE_CHECKING:
    from tests.simulation.call import Call
    from tests.simulation.node import Node
    from tests.simulation.world import World


EARLY_S = 1e-6
"""The loop may call a timer slightly before its time."""


class Channel(Protocol):
    """A client's connection to a process."""

    node: Node
    has_epochs: bool
    """True if commits and reads have leader epochs: OffsetCommit since v6, OffsetFetch since v5."""
    has_retention: bool
    """True if commits may have a retention: OffsetCommit v2 to v4."""

    @property
    def is_open(self) -> bool: ...

    def send(self, calls: Sequence[Call]) -> None:
        """Send one request, or several in one frame. Each call is answered or cut."""
        ...

    def cut(self) -> None:
        """End the connection. Requests without an answer never get one."""
        ...


class Direct:
    """Calls in process, like those of a host that embeds us."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.has_epochs = self.has_retention = True
        self._calls: list[Call] = []

    @property
    def is_open(self) -> bool:
        return not self.node.is_dead

    def send(self, calls: Sequence[Call]) -> None:
        self._calls = [other for other in self._calls if not other.is_over]
        self._calls += calls
        for call in calls:
            self.node.coordinator.submit(call.op.request, call)

    def cut(self) -> None:
        """Keep the requests that have reached the process. Only its end cuts them."""
        if self.node.is_dead:
            for call in self._calls:
                call.cut()


class Wire:
    """A connection of the Kafka port, with the client at its other end."""

    def __init__(self, world: World, node: Node, versions: Versions) -> None:
        self.node = node
        self.has_epochs = versions["offset_commit"] >= 6 and versions["offset_fetch"] >= 5
        self.has_retention = 2 <= versions["offset_commit"] <= 4
        self.is_open = not node.is_dead
        self._is_torn = False
        """True if it broke within a request: the server has the first part, and gets no more."""
        self._world = world
        self._random = world.random
        self._versions = versions
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[int, Sequence[Call]]] = deque()
        self._correlation_id = 0
        self._transport = Transport(self)
        self._connection = Connection(node.server.shared)
        self._connection.connection_made(cast("Any", self._transport))
        self._to_server: deque[tuple[float, bytes]] = deque()
        self._last_arrival_s = 0.0
        self._begun = 0
        """Requests that were open when the client stopped reading answers."""

    def send(self, calls: Sequence[Call]) -> None:
        """Send a request. Before OffsetFetch 8 each group has its own request."""
        if self._versions["offset_fetch"] >= MANY_GROUPS:
            self._send(calls)
        else:
            for call in calls:
                self._send([call])

    def _send(self, calls: Sequence[Call]) -> None:
        """Deliver the request, or only its first part."""
        self._correlation_id += 1
        self._waiting.append((self._correlation_id, calls))
        if self._is_torn:
            return  # or the half request would go on with bytes that were never part of it
        requests = [call.op.request for call in calls]
        data = encode(requests, self._versions, self._correlation_id)
        luck = self._random.random()
        if luck < 0.2:  # in two pieces, with time between them
            middle = self._random.randrange(1, len(data))
            self._deliver(data[:middle])
            if luck < 0.003 and not self._world.is_at_peace:
                self._world.faults["half-written request"] += 1
                self._is_torn = True
                self._loop.call_later(self._random.uniform(0, 1), self.cut)
                return
            data = data[middle:]
        self._deliver(data)

    def cut(self) -> None:
        """Break the connection. Bytes on their way are lost, in both directions."""
        if self.is_open:
            self.is_open = False
            self._loop.call_soon(self._connection.connection_lost, None)
            for _, calls in self._waiting:
                for call in calls:
                    call.cut()
            self._waiting.clear()
            self._transport.lose()

    def be_slow(self, seconds: float) -> None:
        """Read no replies for a while."""
        self._transport.hold(seconds)

    # --- Called by the transport ------------------------------------------------------------------

    def replied(self, data: bytes) -> None:
        """Handle whole replies that the server wrote. They count as answered now, even if the
        client reads them later.
        """
        while data and self.is_open:  # an answer may be the point at which the process dies
            (size,) = struct.unpack_from(">i", data)
            frame, data = data[: 4 + size], data[4 + size :]
            correlation_id, calls = self._waiting[0] if self._waiting else (-1, ())
            if not calls or correlation_id_of(frame) != correlation_id:
                self._world.durable.problem(f"replies out of order: not {correlation_id}")
                self._loop.call_soon(self.cut)
                return
            self._waiting.popleft()
            try:
                results = decode([call.op.request for call in calls], self._versions, frame)
            except AssertionError as error:
                self._world.durable.problem(str(error))
                self._loop.call_soon(self.cut)
                return
            told = [call.answer(result) for call, result in zip(calls, results, strict=True)]
            self._transport.carry(len(frame), calls, told)

    def pause(self) -> None:
        self._connection.pause_writing()
        self._begun = self._connection.requests

    def resume(self) -> None:
        more = self._connection.requests - self._begun
        if more:
            self._world.durable.problem(f"{more} begun for a client that took no answer")
        self._connection.resume_writing()

    def _deliver(self, data: bytes) -> None:
        latency = self._random.choice((0.0, 0.0005, 0.002, 0.02, 0.1))
        at = max(self._loop.time() + latency, self._last_arrival_s)
        self._last_arrival_s = at
        self._to_server.append((at, data))
        self._loop.call_at(at, self.arrive)

    def arrive(self) -> None:
        """Deliver what has arrived to the server, unless it does not read."""
        while self._to_server and self.is_open and self._transport.is_reading:
            at, data = self._to_server[0]
            if at > self._loop.time() + EARLY_S:
                break
            self._to_server.popleft()
            self._connection.data_received(data)


class Transport:
    """The server's side of the socket. What the peer does not read is kept, up to a limit."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._high = 1 << 16
        self._kept: deque[tuple[int, Sequence[Call], Sequence[Callable[[], None]]]] = deque()
        self._kept_bytes = 0
        self._is_paused = False
        self._held_until_s = 0.0
        self._is_closing = False
        self.is_reading = True

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.1", 40_000) if name == "peername" else ("192.0.2.1", 9092)

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._high = high

    def write(self, data: bytes) -> None:
        assert not self._is_closing, "written after closing"
        if self._wire.is_open:
            self._wire.replied(data)
            self._read()

    def close(self) -> None:
        self._is_closing = True
        self._loop.call_soon(self._wire.cut)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        assert self.is_reading, "paused twice"
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading, "resumed twice"
        self.is_reading = True
        self._loop.call_soon(self._wire.arrive)

    def carry(self, size: int, calls: Sequence[Call], told: Sequence[Callable[[], None]]) -> None:
        """Deliver a reply to the client when it reads."""
        self._kept.append((size, calls, told))
        self._kept_bytes += size
        if self._kept_bytes > self._high and not self._is_paused:
            self._is_paused = True
            self._loop.call_soon(self._notify, self._wire.pause)

    def hold(self, seconds: float) -> None:
        self._held_until_s = max(self._held_until_s, self._loop.time() + seconds)
        self._loop.call_at(self._held_until_s, self._read)

    def lose(self) -> None:
        """Drop everything that the client did not read."""
        for _, calls, _ in self._kept:
            for call in calls:
                call.cut()
        self._kept.clear()

    def _read(self) -> None:
        if self._loop.time() + EARLY_S < self._held_until_s:
            return
        while self._kept:
            size, _, told = self._kept.popleft()
            self._kept_bytes -= size
            for deliver in told:
                deliver()
        if self._is_paused:
            self._is_paused = False
            self._loop.call_soon(self._notify, self._wire.resume)

    def _notify(self, call: Callable[[], None]) -> None:
        if self._wire.is_open:
            call()
