"""A link: the connection to a broker that belongs to one client connection.

It is opened at the first request that needs it. The link passes bytes to its owner without decoding
them. The owner pauses it if too many bytes wait.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

import structlog

from groupkeeper.coordinator.gateway.dialing import DialError, dial
from groupkeeper.coordinator.gateway.security import Security
from groupkeeper.coordinator.gateway.traffic import Traffic
from groupkeeper.coordinator.handlers.services import Endpoint
from groupkeeper.coordinator.server.memory import GRAIN_BYTES

_log = structlog.get_logger("groupkeeper.gateway")

SESSION_SHARE: Final = 0.8
"""A link takes no new requests after this share of its session (connections.max.reauth.ms). The
other fifth is for requests that were sent before: if a request arrives after the session, the
broker closes the connection."""
CLOSE_LIMIT_S: Final = 10.0
"""A closed link is aborted after this time if the broker does not read the bytes that are left."""


class LinkOwner(Protocol):
    """The object that opened the link for a client. The link calls these methods."""

    def link_opened(self) -> None:
        """Called once the broker accepts requests."""
        ...

    def link_received(self, data: bytes) -> None:
        """Called with bytes of the broker."""
        ...

    def link_flows(self) -> None:
        """Called when too many bytes wait to be sent, and again when they are sent."""
        ...

    def link_lost(self, error: str) -> None:
        """Called once if the connection could not be opened or has ended. Not called after
        ``close``.
        """
        ...


class LinkTarget:
    """A broker to which links connect, with the counters of these connections."""

    __slots__ = ("broker_id", "connect_timeout_s", "endpoint", "security", "traffic")

    def __init__(
        self, broker_id: int, endpoint: Endpoint, security: Security, connect_timeout_s: float
    ) -> None:
        self.broker_id = broker_id
        self.endpoint = endpoint
        self.security = security
        self.connect_timeout_s = connect_timeout_s
        self.traffic = Traffic()


class BrokerLink(asyncio.Protocol):
    """One connection to a broker, from its opening to its end."""

    def __init__(self, target: LinkTarget, owner: LinkOwner) -> None:
        """Begin to connect."""
        self.target = target
        self._owner: LinkOwner | None = owner
        self._transport: asyncio.Transport | None = None
        self._is_reading = True
        self._ends_s = math.inf
        self.is_writable = True
        """False while many bytes wait to be sent."""
        self._task = asyncio.get_running_loop().create_task(self._open())

    @property
    def is_open(self) -> bool:
        """True if bytes can be written."""
        return self._transport is not None and self._owner is not None

    @property
    def is_over(self) -> bool:
        """True if new requests need another link, because our login expires soon."""
        return self._ends_s < math.inf and asyncio.get_running_loop().time() >= self._ends_s

    @property
    def unsent_bytes(self) -> int:
        """The number of written bytes that are not sent."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def _open(self) -> None:
        target = self.target
        try:
            dialed = await dial(target.endpoint, target.security, self, target.connect_timeout_s)
            if dialed.session_ms:
                lasts_s = dialed.session_ms / 1000 * SESSION_SHARE
                self._ends_s = asyncio.get_running_loop().time() + lasts_s
        except DialError as error:
            target.traffic.is_up = False
            target.traffic.failures["connect"] += 1
            self._end(str(error))
        except Exception as error:  # noqa: BLE001 - its owner must not wait for ever
            _log.exception("link_not_opened", broker=target.broker_id)
            self._end(f"a bug of ours: {error!r}")

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Send bytes to the broker. The link must be open."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self.target.traffic.bytes_out += sum(map(len, pieces))
            self._transport.writelines(pieces)

    def read(self, wanted: bool) -> None:
        """Read from the broker if ``wanted`` is True. Otherwise pause."""
        transport = self._transport
        if transport is None or transport.is_closing() or wanted == self._is_reading:
            return
        self._is_reading = wanted
        (transport.resume_reading if wanted else transport.pause_reading)()

    def close(self) -> None:
        """End the link. Bytes that were written are still sent, for a limited time."""
        self._owner = None
        transport = self._transport
        if transport is None:
            self._task.cancel()
            return
        transport.close()
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(CLOSE_LIMIT_S, transport.abort)

    def _end(self, error: str) -> None:
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.link_lost(error)

    # --- Called by the event loop -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        traffic = self.target.traffic
        traffic.connections += 1
        traffic.is_up = True
        self._transport.set_write_buffer_limits(high=GRAIN_BYTES, low=0)
        if self._owner is None:
            transport.close()
        else:
            self._owner.link_opened()

    def data_received(self, data: bytes) -> None:
        self.target.traffic.bytes_in += len(data)
        if self._owner is not None:
            self._owner.link_received(data)

    def pause_writing(self) -> None:
        self.is_writable = False
        if self._owner is not None:
            self._owner.link_flows()

    def resume_writing(self) -> None:
        self.is_writable = True
        if self._owner is not None:
            self._owner.link_flows()

    def connection_lost(self, exc: Exception | None) -> None:
        self.target.traffic.connections -= 1
        self._end(str(exc) if exc else "the broker closed the connection")


OpenLink = Callable[[LinkOwner], BrokerLink]
"""Begins to connect to a broker for this owner. Returns the link."""
