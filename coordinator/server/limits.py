"""The limits of connections on the Kafka port. ``handlers.services`` has those of a single
request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LARGE_REPLY_BYTES: Final = 1_048_576
"""A reply up to this size needs no check, because ``kafka.max_reply_bytes`` is never lower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits of a server. Names and defaults are those of ``[kafka]`` in the config, except for the
    three limits of a turn. A turn is one iteration of the event loop.
    """

    max_frame_bytes: int = 8_388_608
    max_connections: int = 10_000
    max_connections_per_address: int = 5_000
    connections_max_idle_ms: int = 600_000
    max_waiting_bytes: int = 1_048_576
    """Per connection: the bytes of requests that were read and have not begun, and of replies that
    wait for an earlier reply.
    """
    max_waiting_requests: int = 1_000
    """Per connection: requests that have begun and are not answered (pipelined commits). If as many
    other requests wait to begin, the connection is not read.
    """
    max_buffered_bytes: int = 268_435_456
    """The bytes that all connections together may hold. See ``server/budget.py``."""
    max_turn_bytes: int = 65_536
    """Per connection: the bytes of requests that begin in one turn, together with their immediate
    replies. ``max_turn_requests`` limits their number. The rest begins in the next turn, after the
    other connections, if the peer reads its replies. These limits are not in the config: they
    refuse and lose nothing, but only divide time between connections. Good values depend on this
    code, not on the deployment.
    """
    max_turn_requests: int = 128
    max_turn_s: float = 0.01
    """The time of one connection in one turn. It is also the time of all connections together in
    one turn, once for incoming bytes and once for waiting requests (``loop_share``).
    """
