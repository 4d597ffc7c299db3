"""The memory of one relay (a client connection to a broker's listener), for the memory budget."""

from __future__ import annotations

from collections.abc import Callable


class RelayMemory:
    """The bytes that a relay has reported, and whether they stay in use."""

    __slots__ = ("_requests_seen", "reported_bytes", "stalled_ticks", "waits")

    def __init__(self) -> None:
        self.reported_bytes = 0
        self.stalled_ticks = 0
        self.waits: Callable[[], bool] = bool
        """Returns True if bytes wait for a peer."""
        self._requests_seen = -1

    def waits_for_client(self, requests: int, owes: int) -> bool:
        """Return True if the memory stays in use until a peer sends or reads more. Return False if
        ``requests`` has changed since the last call, because then bytes have passed.
        """
        if self._requests_seen != requests:
            self._requests_seen = requests
            return False
        return self.waits()
