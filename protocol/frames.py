"""Frames out of a stream of bytes: each whole, with its 4-byte length still in front.

The common case is one request in one read: the bytes object is handed on as it came, without a
copy. What is not complete waits in a buffer that grows with what has arrived, never with what was
announced.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from groupkeeper.protocol.errors import ProtocolError

_LENGTH: Final = Struct(">i")
_unpack_length: Final = _LENGTH.unpack_from
_PREFIX: Final = _LENGTH.size

MAX_FRAME_BYTES_LIMIT: Final = 0x1603_0000
"""Frames may not be larger: from here on a length could be the first bytes of TLS (or HTTP)."""

_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP_VERBS: Final = (
    b"GET ",
    b"POST",
    b"PUT ",
    b"HEAD",
    b"DELE",
    b"OPTI",
    b"PATC",
    b"CONN",
    b"TRAC",
    b"PRI ",
)


class FrameError(ProtocolError):
    """A length that no frame of ours can have; what follows in the stream means nothing."""

    def __init__(self, reason: str, message: str, frames: list[bytes]) -> None:
        """Keep the whole frames that came before it in the same read: they can be answered."""
        super().__init__(reason, message)
        self.frames = frames


class FrameSplitter:
    """Cuts what a connection receives into frames. After a FrameError it is not to be fed again."""

    __slots__ = ("_max_frame_bytes", "_waiting", "_wanted")

    def __init__(self, max_frame_bytes: int) -> None:
        """Refuse frames of more than ``max_frame_bytes``, the prefix not counted."""
        assert 0 < max_frame_bytes < MAX_FRAME_BYTES_LIMIT, max_frame_bytes
        self._max_frame_bytes = max_frame_bytes
        self._waiting = bytearray()
        self._wanted = _PREFIX
        """With so many bytes there is something to do."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._waiting)

    def forget(self) -> None:
        """Drop what is not complete: nothing more will come."""
        self._waiting = bytearray()
        self._wanted = _PREFIX

    def is_one(self, data: bytes) -> bool:
        """Say whether ``data`` is one whole frame, with nothing before it that is incomplete. It
        need not be fed then: ``feed`` returns it as it is.
        """
        size = len(data) - _PREFIX
        return (
            0 <= size <= self._max_frame_bytes
            and _unpack_length(data)[0] == size
            and not self._waiting
        )

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that ``data`` completes, in order; raise FrameError at a length that
        cannot be.
        """
        if self.is_one(data):
            return [data]
        if not self._waiting:
            return self._cut(data)
        self._waiting += data
        if len(self._waiting) < self._wanted:
            return []
        arrived = bytes(self._waiting)
        self._waiting = bytearray()
        return self._cut(arrived)

    def _cut(self, data: bytes) -> list[bytes]:
        frames: list[bytes] = []
        position, end = 0, len(data)
        self._wanted = _PREFIX
        while end - position >= _PREFIX:
            size: int = _unpack_length(data, position)[0]
            if not 0 <= size <= self._max_frame_bytes:
                raise _refusal(data[position : position + _PREFIX], size, frames)
            stop = position + _PREFIX + size
            if stop > end:
                self._wanted = _PREFIX + size
                break
            frames.append(data[position:stop])
            position = stop
        self._waiting += data[position:]
        return frames


def _refusal(first: bytes, size: int, frames: list[bytes]) -> FrameError:
    if first.startswith(_TLS_HANDSHAKE):
        return FrameError("not_kafka_tls", "a TLS handshake on a plaintext port", frames)
    if first in _HTTP_VERBS:
        return FrameError("not_kafka_http", "an HTTP request on the Kafka port", frames)
    if size < 0:
        return FrameError("negative_length", f"a frame of {size} bytes", frames)
    return FrameError("frame_too_large", f"a frame of {size} bytes", frames)
