"""The counters of the connections to one broker, read when metrics are scraped."""

from __future__ import annotations

from collections import Counter
from typing import Final

LOST: Final = "lost"
"""The reason of a connection that the broker ended although a reply was missing."""


class Traffic:
    """The connections to one broker: their number, their bytes and their failures."""

    __slots__ = ("bytes_in", "bytes_out", "connections", "failures", "is_up")

    def __init__(self) -> None:
        self.connections = 0
        """Open connections to the broker."""
        self.bytes_out = 0
        """Bytes sent to the broker."""
        self.bytes_in = 0
        """Bytes received from the broker."""
        self.failures: Counter[str] = Counter()
        """Reason -> the number of failed connections. The reason is ``connect`` if a connection
        could not be opened, and ``LOST`` if a reply was missing at its end. For a bad reply it is
        the reason of the ProtocolError."""
        self.is_up = True
        """False if the last attempt to connect failed."""
