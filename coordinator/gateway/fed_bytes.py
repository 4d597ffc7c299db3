"""A buffer for the bytes of a peer. Subclasses split them into requests or replies. Pure."""

from __future__ import annotations

from typing import Final, TypeAlias

Bytes: TypeAlias = bytes | memoryview

VIEW_BYTES: Final = 16_384
"""Received bytes of at least this size are passed on as a memoryview, without a copy. Until it is
sent, the memoryview keeps all bytes in memory that were received with them.
"""


class FedBytes:
    """The bytes that one peer has sent and that were not taken yet."""

    __slots__ = ("_data", "_passing", "_position", "_waiting", "_wanted")

    def __init__(self) -> None:
        self._data = b""
        self._position = 0
        self._waiting = bytearray()
        """An incomplete frame, or the incomplete beginning of a frame that passes in parts."""
        self._wanted = 0
        """When ``_waiting`` has this many bytes, something can be taken."""
        self._passing = 0
        """The number of bytes not yet taken of the frame that passes in parts."""

    @property
    def held_bytes(self) -> int:
        """The number of bytes that were fed and not taken."""
        return len(self._waiting) + len(self._data) - self._position

    def feed(self, data: bytes) -> None:
        """Add bytes that the peer has sent."""
        if self._waiting:
            self._waiting += data
            if len(self._waiting) < self._wanted:
                return
            data = bytes(self._waiting)
            self._waiting = bytearray()
        elif self._position < len(self._data):
            data = self._data[self._position :] + data
        self._data, self._position = data, 0

    def _wait(self, wanted: int) -> None:
        """Keep the remaining bytes until this many have arrived."""
        self._waiting += self._data[self._position :]
        self._wanted = wanted
        self._data, self._position = b"", 0

    def _view(self, size: int) -> Bytes:
        """Take the next ``size`` bytes to pass them on. ``VIEW_BYTES`` or more are not copied."""
        data, start = self._data, self._position
        if size < VIEW_BYTES or size == len(data):
            return self._cut(size)
        stop = start + size
        if stop < len(data):
            self._position = stop
        else:
            self._data, self._position = b"", 0
        return memoryview(data)[start:stop]

    def _cut(self, size: int) -> bytes:
        data, start = self._data, self._position
        stop = start + size
        if stop == len(data):
            self._data, self._position = b"", 0
            return data[start:] if start else data
        self._position = stop
        return data[start:stop]
