"""Asks the coordinator about many groups for one request of a client. A question is one request to
the coordinator, about one group. Only some questions are asked at a time, so that other requests
can run.

Each answer is rendered at once, and only its bytes are kept, because a request may name one large
group a thousand times. A reply that becomes too large closes the connection before it fills the
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from groupkeeper.coordinator.handlers.slices import REPLY_TOO_LARGE, PartInSlices
from groupkeeper.coordinator.runtime.tickets import Part, whole

if TYPE_CHECKING:
    from groupkeeper.coordinator.core.requests.request import Request
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services
    from groupkeeper.coordinator.handlers.slices import Slices

WINDOW_REQUESTS = 64
WINDOW_BYTES = 262_144
"""After ``WINDOW_REQUESTS`` questions, or this many bytes of answers, other requests run before the
next question.
"""


class Enclosed(NamedTuple):
    """A part of a reply with an array that is made in slices."""

    slices: Slices
    """Makes the elements of the array."""
    enclose: Callable[[bytearray], bytes]
    """Returns the part, from the bytes of all slices."""


class Gather:
    """The questions that one request asks the coordinator, and their answers."""

    def __init__(
        self,
        exchange: Exchange,
        services: Services,
        requests: Sequence[Request],
        render: Callable[[Any, int], bytes | Slices | Enclosed],
        finish: Callable[[list[Any]], bytes],
        at_once: int = WINDOW_REQUESTS,
    ) -> None:
        """``render`` makes the part of the reply for the request at an index. ``finish`` makes the
        frame from the parts, which are bytes or bytearrays. ``at_once`` limits the questions that
        wait for their answers.
        """
        self._exchange = exchange
        self._services = services
        self._requests = requests
        self._render = render
        self._at_once = at_once
        self._finish = finish
        self._parts: list[bytes | bytearray] = [b""] * len(requests)
        self._bytes = 0
        self._next = 0
        self._missing = 0
        self._submitting = False

    def begin(self) -> None:
        """Ask the next questions. The exchange is answered after the last answer, which may be
        before this returns.
        """
        requests = self._requests
        self._exchange.on_closed = None
        stop = min(self._next + WINDOW_REQUESTS, len(requests))
        full = self._bytes + WINDOW_BYTES
        self._submitting = True
        while self._next < stop and self._bytes < full and self._missing < self._at_once:
            index = self._next
            self._next += 1
            self._missing += 1
            submit = self._services.coordinator.submit
            submit(requests[index], whole(submit, requests[index], Part(self.took, index)))
        self._submitting = False
        if not self._missing:
            self._advance()

    def took(self, index: int, result: Any) -> None:
        """Render the answer to the question at this index."""
        try:
            part = self._render(result, index)
        except Exception as error:  # noqa: BLE001 - as in Exchange.resolve
            self._exchange.channel.failed(self._exchange, error)
            return
        if isinstance(part, bytes):
            self._exchange.channel.grew(self._exchange, len(part))
            self._made(index, part)
        else:
            self._exchange.group_id = getattr(self._requests[index], "group_id", None)
            if isinstance(part, Enclosed):
                slices = part.slices
                made = partial(self._enclosed, index, part.enclose)
            else:
                slices, made = part, partial(self._made, index)
            PartInSlices(self._exchange, self._services, slices, made, self._bytes).advance()

    def _enclosed(self, index: int, enclose: Callable[[bytearray], bytes], made: bytearray) -> None:
        # The part is a copy of the slices and needs the same memory again.
        self._exchange.channel.grew(self._exchange, len(made))
        if not self._exchange.is_detached:
            self._made(index, enclose(made))

    def _made(self, index: int, part: bytes | bytearray) -> None:
        self._parts[index] = part
        self._bytes += len(part)
        self._missing -= 1
        if not self._missing and not self._submitting:
            self._advance()

    def _advance(self) -> None:
        exchange = self._exchange
        if self._bytes > self._services.max_reply_bytes:
            largest = max(range(self._next), key=lambda index: len(self._parts[index]))
            exchange.group_id = getattr(self._requests[largest], "group_id", None)
            exchange.channel.refused(exchange, REPLY_TOO_LARGE)
        elif self._next < len(self._requests):
            exchange.on_closed = exchange.channel.later(0, self.begin)
        else:
            # the reply is a copy of the parts and needs the same memory again
            exchange.channel.grew(exchange, self._bytes)
            if not exchange.is_detached:
                exchange.send(self._finish(self._parts))
