"""A reply whose size depends on the stored data and not on the request. One slice is made per turn.

A generator makes it. It yields each full slice and returns the last one, so a short reply is made
in its first turn. Finished slices count against the budget of the connections. A reply that becomes
too large is aborted before the rest is made.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

SLICE_BYTES = 262_144
SLICE_ELEMENTS = 2_000
"""The size of a slice, which needs 1 to 10 ms."""

REPLY_TOO_LARGE = "reply_too_large"

Slices: TypeAlias = Generator[bytes, None, bytes]


class SlicedReply:
    """Makes the slices of one reply, or of a part of it."""

    def __init__(
        self,
        exchange: Exchange,
        services: Services,
        slices: Slices,
        done: Callable[[list[bytes]], None],
        made_bytes: int = 0,
    ) -> None:
        """``done`` is called with all slices at the end. ``made_bytes`` is the size of the earlier
        parts of the reply.
        """
        self._exchange = exchange
        self._slices = slices
        self._done = done
        self._parts: list[bytes] = []
        self._bytes = made_bytes
        self._max_bytes = services.max_reply_bytes

    def advance(self) -> None:
        """Make the next slice, and schedule the one after it for the next turn."""
        exchange = self._exchange
        exchange.on_closed = None
        try:
            self._advance()
        except Exception as error:  # noqa: BLE001 - as in Exchange.resolve
            exchange.channel.failed(exchange, error)

    def _advance(self) -> None:
        exchange = self._exchange
        is_last = False
        try:
            part = next(self._slices)
        except StopIteration as end:
            part, is_last = end.value, True
        self._parts.append(part)
        self._bytes += len(part)
        if self._bytes > self._max_bytes:
            exchange.channel.refused(exchange, REPLY_TOO_LARGE)
        elif is_last:
            # the parts and their copy in the reply are held together
            exchange.channel.grew(exchange, sum(map(len, self._parts)))
            if not exchange.is_released:
                self._done(self._parts)
        else:
            exchange.channel.grew(exchange, len(part))
            exchange.on_closed = exchange.channel.later(0, self.advance)
