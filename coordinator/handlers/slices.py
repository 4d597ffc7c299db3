"""Makes a reply whose size depends on the stored data, not on the request. It makes one slice in
each iteration of the event loop.

The renderer is a generator. It yields each full slice and returns the last one, so a short reply is
complete after its first slice. Finished slices count as memory of the connection. A reply that
becomes too large is aborted before the rest is made.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

SLICE_BYTES = 262_144
SLICE_ELEMENTS = 2_000
"""The number of elements in a slice. A slice takes 1 to 10 ms."""

REPLY_TOO_LARGE = "reply_too_large"

Slices: TypeAlias = Generator[bytes, None, bytes]


class PartInSlices:
    """Makes a large part of a reply in slices, one in each iteration of the event loop."""

    def __init__(
        self,
        exchange: Exchange,
        services: Services,
        slices: Slices,
        done: Callable[[bytearray], None],
        made_bytes: int = 0,
    ) -> None:
        """``done`` is called at the end with the bytes of all slices. ``made_bytes`` is the size of
        the earlier parts of the reply.
        """
        self._exchange = exchange
        self._slices = slices
        self._done = done
        # One buffer, not a list: the slices of many replies leave gaps in glibc's heap, together as
        # large as all these replies. A large buffer returns to the system.
        self._made = bytearray()
        self._max_bytes = services.max_reply_bytes - made_bytes

    def advance(self) -> None:
        """Make the next slice, and schedule the one after it for the next iteration of the
        event loop.
        """
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
        self._made += part
        if len(self._made) > self._max_bytes:
            exchange.channel.refused(exchange, REPLY_TOO_LARGE)
            return
        exchange.channel.grew(exchange, len(part))
        if exchange.is_detached:  # the memory limit of the server has closed the connection
            return
        if is_last:
            self.end(self._made)
        else:
            exchange.on_closed = exchange.channel.later(0, self.advance)

    def end(self, made: bytearray) -> None:
        """Call ``done`` with the bytes of all slices."""
        self._done(made)


class SlicedReply(PartInSlices):
    """Makes a whole reply in slices. ``done`` copies the slices into the frame of the reply."""

    def end(self, made: bytearray) -> None:
        """Call ``done`` with the bytes, if there is room in memory for the bytes and their copy."""
        self._exchange.channel.grew(self._exchange, len(made))
        if not self._exchange.is_detached:
            super().end(made)
