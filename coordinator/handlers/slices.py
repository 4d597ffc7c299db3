"""A reply that grows with what there is, and not with what was asked: made a slice in each turn.

A generator makes it. It yields what it has once that is a slice, and returns the last of it; so a
short reply is made in the turn in which it was begun. What is made counts into the budget of the
connections, and a reply that becomes too large ends before the rest is made.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

SLICE_BYTES = 262_144
SLICE_ELEMENTS = 2_000
"""What is made in one turn: 1 to 10 ms."""

REPLY_TOO_LARGE = "reply_too_large"

Slices: TypeAlias = Generator[bytes, None, bytes]


class SlicedReply:
    """The slices of one reply, or of a part of it, as they are made."""

    __slots__ = ("_bytes", "_done", "_exchange", "_max_bytes", "_parts", "_slices")

    def __init__(
        self,
        exchange: Exchange,
        services: Services,
        slices: Slices,
        done: Callable[[list[bytes]], None],
        made_bytes: int = 0,
    ) -> None:
        """``done`` takes all slices in the end; ``made_bytes`` of the reply were made before."""
        self._exchange = exchange
        self._slices = slices
        self._done = done
        self._parts: list[bytes] = []
        self._bytes = made_bytes
        self._max_bytes = services.max_reply_bytes

    def advance(self) -> None:
        """Make the next slice."""
        exchange = self._exchange
        exchange.on_closed = None
        try:
            self._advance()
        except Exception as error:  # noqa: BLE001 - as Exchange.resolve
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
            self._done(self._parts)
        else:
            exchange.channel.grew(exchange, len(part))
            exchange.on_closed = exchange.channel.later(0, self.advance)
