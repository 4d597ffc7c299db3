"""Closes idle connections.

Only whole requests count as activity. A client that sends one byte a minute is idle.
"""

from __future__ import annotations

from groupkeeper.coordinator.server.shared import Activity, Registered


def sweep(connections: dict[Registered, Activity], now_s: float, idle_s: float) -> None:
    """Close each connection that has been idle for ``idle_s``, and record the activity of the
    others.
    """
    for connection, seen in tuple(connections.items()):
        is_idle = now_s - seen.since_s >= idle_s
        if connection.is_closed:
            if is_idle:  # the client does not even read the bytes that were written before
                connection.force_close()
        elif connection.requests != seen.requests or connection.waits_for_us:
            connections[connection] = Activity(connection.requests, now_s)
        elif is_idle:
            connection.abort(connection.idle_reason())
