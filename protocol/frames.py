"""Splits a stream of bytes into whole frames, each with its 4-byte length prefix.

Usually one read is one request: its bytes object is returned without a copy. Incomplete frames wait
in a buffer that grows with the bytes received, never with the announced length.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from groupkeeper.protocol.errors import ProtocolError

_LENGTH: Final = Struct(">i")
_unpack_length: Final = _LENGTH.unpack_from
_PREFIX: Final = _LENGTH.size

MAX_FRAME_BYTES_LIMIT: Final = 0x1603_0000
"""Upper bound of ``max_frame_bytes``: a larger length may be the first bytes of TLS or HTTP."""

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
    """An invalid frame length. The rest of the stream cannot be interpreted."""

    def __init__(self, reason: str, message: str, frames: list[bytes]) -> None:
        """Keep the whole frames that came before it in the same read: they can still be
        answered.
        """
        super().__init__(reason, message)
        self.frames = frames


class FrameSplitter:
    """Splits the bytes of a connection into frames. After a FrameError it must not be fed again."""

    __slots__ = ("_max_frame_bytes", "_waiting", "_wanted")

    def __init__(self, max_frame_bytes: int) -> None:
        """Refuse frames of more than ``max_frame_bytes``, without the prefix."""
        assert 0 < max_frame_bytes < MAX_FRAME_BYTES_LIMIT, max_frame_bytes
        self._max_frame_bytes = max_frame_bytes
        self._waiting = bytearray()
        self._wanted = _PREFIX
        """The number of buffered bytes from which a frame may be complete."""

    @property
    def waiting_bytes(self) -> int:
        """Return the size of the incomplete frame so far."""
        return len(self._waiting)

    def forget(self) -> None:
        """Drop an incomplete frame, because no more bytes will come."""
        self._waiting = bytearray()
        self._wanted = _PREFIX

    def is_one(self, data: bytes) -> bool:
        """Return whether ``data`` is one whole frame and no incomplete one precedes it.

        The caller need not feed it then: ``feed`` would return it unchanged.
        """
        size = len(data) - _PREFIX
        return (
            0 <= size <= self._max_frame_bytes
            and _unpack_length(data)[0] == size
            and not self._waiting
        )

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that ``data`` completes, in order. Raises FrameError for an invalid
        length.
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
