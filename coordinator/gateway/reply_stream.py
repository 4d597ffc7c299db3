"""Splits the bytes of a broker into the replies to the requests that were passed to it. Pure.

A reply that nobody changes is passed on as it arrives. A reply that must be changed is first
gathered whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from groupkeeper.coordinator.gateway.fed_bytes import Bytes, FedBytes
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import PREFIX_BYTES

_BEGINNING: Final = Struct(">ii")
"""Size and correlation id."""
_CORRELATION_ID_BYTES: Final = 4

Change: TypeAlias = Callable[[bytes], bytes]
"""Takes a whole reply of the broker. Returns the reply for the client. Raises ProtocolError if the
bytes are invalid.
"""


class ReplySlot:
    """The place of a passed request in the order of replies."""

    __slots__ = ("change", "correlation_id", "key", "version")

    def __init__(
        self, key: int, version: int, correlation_id: int, change: Change | None = None
    ) -> None:
        """``change`` converts the reply. If it is None, the reply is passed on as it arrives."""
        self.key = key
        self.version = version
        self.correlation_id = correlation_id
        self.change = change


class Piece(NamedTuple):
    """Bytes of the reply to the request in ``slot``. If the reply must be changed, one piece has
    the whole reply before the change.
    """

    slot: ReplySlot
    data: Bytes
    is_last: bool


class ReplyStream(FedBytes):
    """The bytes of one broker. After a ProtocolError, do not feed or take any more bytes."""

    __slots__ = ("_max_bytes", "_max_passed_bytes", "_slots")

    def __init__(self, max_bytes: int, max_passed_bytes: int) -> None:
        """``max_bytes`` limits a reply that is gathered, ``max_passed_bytes`` any other."""
        super().__init__()
        self._max_bytes = max_bytes
        self._max_passed_bytes = max_passed_bytes
        self._slots: deque[ReplySlot] = deque()

    def expect(self, slot: ReplySlot) -> None:
        """Add the slot of a request that was passed."""
        self._slots.append(slot)

    @property
    def owes(self) -> int:
        """The number of replies that are not complete."""
        return len(self._slots)

    def take(self) -> Piece | None:
        """Return the next piece; None if more bytes are needed.

        Raises ProtocolError if the bytes are no reply to the next request.
        """
        data, start = self._data, self._position
        left = len(data) - start
        if not left:
            return None
        if self._passing:
            taken = min(left, self._passing)
            self._passing -= taken
            return self._piece(taken, is_last=not self._passing)
        if not self._slots:
            raise ProtocolError("unexpected_reply", "the broker sent a reply to no request")
        if left < _BEGINNING.size:
            self._wait(_BEGINNING.size)
            return None
        size, correlation_id = _BEGINNING.unpack_from(data, start)
        slot = self._slots[0]
        limit = self._max_passed_bytes if slot.change is None else self._max_bytes
        if not _CORRELATION_ID_BYTES <= size <= limit:
            raise ProtocolError("bad_reply", f"the broker sent a reply of {size} bytes")
        if correlation_id != slot.correlation_id:
            raise ProtocolError("unexpected_reply", "the broker sent a reply to another request")
        whole = PREFIX_BYTES + size
        if slot.change is not None and left < whole:
            self._wait(whole)
            return None
        taken = min(left, whole)
        self._passing = whole - taken
        return self._piece(taken, is_last=not self._passing)

    def _piece(self, size: int, *, is_last: bool) -> Piece:
        slot = self._slots.popleft() if is_last else self._slots[0]
        return Piece(slot, self._view(size) if slot.change is None else self._cut(size), is_last)
