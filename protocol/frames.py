"""Splits a stream of bytes into whole frames, and reads the header of each.

A frame includes its 4-byte length prefix. A position in a frame counts from the start of the
prefix. Usually one read of the socket returns one whole frame, and its bytes object is used without
a copy. An incomplete frame waits in a buffer that grows with the bytes received, never with the
announced length.

Headers are those of requests (v1 and v2) and responses (v0 and v1).
"""

from __future__ import annotations

import sys
from struct import Struct, error
from typing import Final, NamedTuple, TypeAlias

from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.reader import MAX_HEADER_TAGS, Input, java_text
from groupkeeper.protocol.versions import API_BY_KEY, KNOWN_API_BY_KEY, ApiKey

PREFIX_BYTES: Final = 4
"""Size of the length prefix of every frame."""

_unpack_length: Final = Struct(">i").unpack_from

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
    """The length of a frame is invalid. The rest of the stream cannot be interpreted."""

    def __init__(self, reason: str, message: str, frames: list[bytes]) -> None:
        """Keep the whole frames that came before the invalid one in the same read. They can still
        be answered.
        """
        super().__init__(reason, message)
        self.frames = frames


_NOTHING: Final = bytearray()
"""The incomplete frame of a connection that has none. It is shared, and nothing is added to it."""


class FrameSplitter:
    """Splits the bytes of a connection into frames. After a FrameError it must not be fed again."""

    __slots__ = ("_max_frame_bytes", "_wanted", "waiting")

    def __init__(self, max_frame_bytes: int) -> None:
        """Refuse frames of more than ``max_frame_bytes``, without the prefix."""
        assert 0 < max_frame_bytes < MAX_FRAME_BYTES_LIMIT, max_frame_bytes
        self._max_frame_bytes = max_frame_bytes
        self.waiting = _NOTHING
        """The bytes of an incomplete frame."""
        self._wanted = PREFIX_BYTES
        """The number of buffered bytes from which a frame may be complete."""

    @property
    def waiting_bytes(self) -> int:
        """Return the size of the incomplete frame so far."""
        return len(self.waiting)

    def forget(self) -> None:
        """Drop an incomplete frame, because no more bytes will come."""
        self.waiting = _NOTHING
        self._wanted = PREFIX_BYTES

    def is_one(self, data: bytes) -> bool:
        """Return True if ``data`` is one whole frame and no incomplete frame precedes it.

        The caller then need not call ``feed``, which would return ``data`` unchanged.
        """
        size = len(data) - PREFIX_BYTES
        return (
            0 <= size <= self._max_frame_bytes
            and _unpack_length(data)[0] == size
            and not self.waiting
        )

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that ``data`` completes, in order. Raises FrameError for an invalid
        length.
        """
        if self.is_one(data):
            return [data]
        if not self.waiting:
            return self._cut(data)
        self.waiting += data
        if len(self.waiting) < self._wanted:
            return []
        arrived = bytes(self.waiting)
        self.waiting = _NOTHING
        return self._cut(arrived)

    def _cut(self, data: bytes) -> list[bytes]:
        frames: list[bytes] = []
        position, end = 0, len(data)
        self._wanted = PREFIX_BYTES
        while end - position >= PREFIX_BYTES:
            size: int = _unpack_length(data, position)[0]
            if not 0 <= size <= self._max_frame_bytes:
                raise _refusal(data[position : position + PREFIX_BYTES], size, frames)
            stop = position + PREFIX_BYTES + size
            if stop > end:
                self._wanted = PREFIX_BYTES + size
                break
            frames.append(data[position:stop])
            position = stop
        if position < end:
            self.waiting = bytearray(data[position:])
        return frames


def _refusal(first: bytes, size: int, frames: list[bytes]) -> FrameError:
    if first.startswith(_TLS_HANDSHAKE):
        return FrameError("not_kafka_tls", "a TLS handshake on a plaintext port", frames)
    if first in _HTTP_VERBS:
        return FrameError("not_kafka_http", "an HTTP request on the Kafka port", frames)
    if size < 0:
        return FrameError("negative_length", f"a frame of {size} bytes", frames)
    return FrameError("frame_too_large", f"a frame of {size} bytes", frames)


def check_length(prefix: bytes, max_bytes: int) -> None:
    """Raise FrameError if the length of a frame is negative or above ``max_bytes``. ``prefix`` has
    the 4 bytes of the length.
    """
    size: int = _unpack_length(prefix)[0]
    if not 0 <= size <= max_bytes:
        raise _refusal(prefix, size, [])


# --- Headers --------------------------------------------------------------------------------------

_FIXED: Final = Struct(">hhih")
_CLIENT_ID_AT: Final = PREFIX_BYTES + _FIXED.size
_CLIENT_ID_SIZE_AT: Final = _CLIENT_ID_AT - 2
_BEFORE_CLIENT_ID: Final = Struct(">iii").unpack_from
"""Reads three numbers: the size, the API key and version together (``_coded``), and the correlation
id.
"""
_INT16: Final = Struct(">h").unpack_from

_RESPONSE_V0: Final = Struct(">ii")
_RESPONSE_V1: Final = Struct(">iix")


class RequestHeader(NamedTuple):
    """The header of a request, and where its body begins in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


_new: Final = tuple.__new__
"""Creates a NamedTuple directly: its Python constructor takes 0.15 us longer for every request."""


def _has_flexible_header(api_key: int, version: int) -> bool:
    """Return True if a version that we do not serve has a flexible header.

    Of the requests in such a version, only ApiVersions gets an answer. For other APIs this returns
    False, and the header is read up to the client id. Up to there, all headers are the same.
    """
    return api_key == ApiKey.API_VERSIONS and API_BY_KEY[api_key].is_flexible(version)


def _coded(api_key: int, version: int) -> int:
    """Return a key and a version as one number, which has the same four bytes. A lookup of a number
    takes less time than a lookup of a tuple.
    """
    return api_key << 16 | version & 0xFFFF


_FLEXIBLE: Final = {
    _coded(int(api.key), version): api.is_flexible(version)
    for api in KNOWN_API_BY_KEY.values()
    for version in range(api.lowest_served, api.max_version + 1)
}
"""Coded key and version -> True if the headers are flexible. It has only served versions, and these
are never negative.
"""


def _skip_tags(frame: bytes, position: int) -> int:
    if position < len(frame) and frame[position] == 0:
        return position + 1
    source = Input(frame, position, MAX_HEADER_TAGS)
    try:
        source.skip_tags()
    except IndexError:
        raise ProtocolError("bad_header", "the header's tagged fields end early") from None
    return source.position


def read_request_header(frame: bytes) -> RequestHeader:
    """Read the header of a frame. The caller checks whether its key and version are served.

    If they are not served, the body offset is the end of the client id, except for ApiVersions.
    Raises ProtocolError if the header is invalid.
    """
    try:
        api_key, version, correlation_id, client_id_bytes = _FIXED.unpack_from(frame, PREFIX_BYTES)
    except error:
        raise ProtocolError("bad_header", "the frame is shorter than a request header") from None
    position = _CLIENT_ID_AT
    client_id: str | None = None
    # Both header versions have a classic 2-byte length. As in Kafka, any negative length is null.
    if client_id_bytes >= 0:
        position += client_id_bytes
        if position > len(frame):
            raise ProtocolError("bad_header", "the client id reaches beyond the frame")
        raw = frame[_CLIENT_ID_AT:position]
        try:
            client_id = raw.decode()
        except UnicodeDecodeError:
            client_id = java_text(raw)
    flexible = _FLEXIBLE.get(_coded(api_key, version))
    if flexible is None:
        flexible = _has_flexible_header(api_key, version)
    if flexible:
        position = _skip_tags(frame, position)
    return _new(RequestHeader, (api_key, version, correlation_id, client_id, position))


MAX_REMEMBERED_BYTES: Final = 256
"""Longer client ids are decoded again for each request, to bound the memory of a connection."""

HeaderFields: TypeAlias = tuple[int, int, int, str | None, int]
"""The values of a ``RequestHeader`` as a plain tuple, in the order of its fields."""

WholeFields: TypeAlias = tuple[int, int, int, int]
"""The fields of ``RequestHeader`` without the client id."""


class HeaderReader:
    """Reads the headers of one connection, whose client id rarely changes."""

    __slots__ = ("_body_at", "_client_id", "_max_frame_bytes", "_raw")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES_LIMIT) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._raw = b"\xff\xff"
        """The last client id as bytes, with its length."""
        self._client_id: str | None = None
        self._body_at = _CLIENT_ID_AT
        """The position after the last client id."""

    def read_whole(self, data: bytes) -> WholeFields | None:
        """Read the header if ``data`` is exactly one frame with the client id of the last frame.

        Return None for any other data. The caller then splits it into frames, and calls ``read``.
        """
        position = self._body_at
        if data[_CLIENT_ID_SIZE_AT:position] != self._raw:
            return None
        size, coded, correlation_id = _BEFORE_CLIENT_ID(data)
        if size != len(data) - PREFIX_BYTES or size > self._max_frame_bytes:
            return None
        try:
            if _FLEXIBLE[coded]:
                if position == len(data) or data[position] != 0:
                    return None
                position += 1
        except KeyError:  # it is not served
            return None
        return coded >> 16, coded & 0xFFFF, correlation_id, position

    def read(self, frame: bytes) -> HeaderFields:
        """Read the header of a frame, like ``read_request_header``."""
        if frame[_CLIENT_ID_SIZE_AT : self._body_at] == self._raw:
            _, coded, correlation_id = _BEFORE_CLIENT_ID(frame)
            position = self._body_at
            flexible = _FLEXIBLE.get(coded)
            if flexible is not None:
                api_key, version = coded >> 16, coded & 0xFFFF
                if not flexible:
                    return api_key, version, correlation_id, self._client_id, position
                if position < len(frame) and frame[position] == 0:
                    return api_key, version, correlation_id, self._client_id, position + 1
        header = read_request_header(frame)
        stop = _CLIENT_ID_AT + max(_INT16(frame, _CLIENT_ID_SIZE_AT)[0], 0)
        if stop - _CLIENT_ID_AT <= MAX_REMEMBERED_BYTES:
            self._raw = frame[_CLIENT_ID_SIZE_AT:stop]
            # The connections of an application often have one client id. It is in memory once.
            name = header.client_id
            self._client_id = None if name is None else sys.intern(name)
            self._body_at = stop
        else:
            self._forget()
        return header

    def _forget(self) -> None:
        """Forget the last client id. Then the next header never counts as a repetition."""
        self._raw = b"\0"
        self._body_at = _CLIENT_ID_SIZE_AT  # the slice that is compared is empty


def response_header(*, flexible: bool) -> Struct:
    """Return the struct of a length and a correlation id: response header v0, or v1 without tags.

    Every flexible version has header v1, except in ApiVersions. Its reply always has v0, because a
    client reads it before it knows our versions.
    """
    return _RESPONSE_V1 if flexible else _RESPONSE_V0


def has_flexible_response_header(api_key: int, version: int) -> bool:
    """Return True if a response of this version has header v1."""
    return api_key != ApiKey.API_VERSIONS and KNOWN_API_BY_KEY[api_key].is_flexible(version)
