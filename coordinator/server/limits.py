"""What the Kafka port takes from its peers: every limit of it, in one place."""

from __future__ import annotations

from dataclasses import dataclass

LARGE_REPLY_BYTES = 1_048_576
"""A shorter reply is within every ``kafka.max_reply_bytes``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Limits of a listener; names and defaults are those of ``[kafka]`` in the config, but for the
    three of a turn.
    """

    max_frame_bytes: int = 8_388_608
    max_connections: int = 10_000
    max_connections_per_address: int = 5_000
    connections_max_idle_ms: int = 600_000
    max_waiting_bytes: int = 1_048_576
    """Of one connection: requests that were read and not begun, replies that were made and not
    taken.
    """
    max_waiting_requests: int = 1_000
    """Of one connection: requests that were begun and not answered (pipelined commits)."""
    max_buffered_bytes: int = 268_435_456
    """Of all connections together: see ``server/budget.py``."""
    max_turn_bytes: int = 65_536
    """Of one connection: requests begun in one turn of the loop, by their bytes, and those of what
    they were answered at once, and by their number. The rest goes on in the next turn, after
    everyone else had theirs, and if the peer takes its replies. Not in the config:
    nothing is refused or lost by them, they only divide time between connections, and what suits
    depends on this code and not on who runs it.
    """
    max_turn_requests: int = 128
    max_turn_s: float = 0.01
    """Of one connection the same, and of all together: what they do in one turn of the loop, once
    as bytes come in and once for what was left (``turns``).
    """
