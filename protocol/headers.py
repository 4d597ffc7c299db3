"""Request headers v1 and v2, response headers v0 and v1.

Frames here include their 4-byte length prefix (see ``protocol/frames.py``), so positions count from
there.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple, TypeAlias

from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.reader import MAX_HEADER_TAGS, Input, java_text
from groupkeeper.protocol.versions import API_BY_KEY, ApiKey

PREFIX_BYTES: Final = 4
"""Size of the length prefix of every frame."""

_FIXED: Final = Struct(">hhih")
_CLIENT_ID_AT: Final = PREFIX_BYTES + _FIXED.size
_CLIENT_ID_SIZE_AT: Final = _CLIENT_ID_AT - 2
_BEFORE_CLIENT_ID: Final = Struct(">4xhhi").unpack_from
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
    """Return whether an unserved version has a flexible header.

    Of such versions only ApiVersions is answered. In all others the header is read up to the client
    id, since all headers begin alike.
    """
    return api_key == ApiKey.API_VERSIONS and API_BY_KEY[api_key].is_flexible(version)


_FLEXIBLE: Final = {
    (int(api.key), version): api.is_flexible(version)
    for api in API_BY_KEY.values()
    for version in range(api.lowest_served, api.max_version + 1)
}


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

    If they are not served, the body offset is the end of the client id.
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
    flexible = _FLEXIBLE.get((api_key, version))
    if flexible is None:
        flexible = _has_flexible_header(api_key, version)
    if flexible:
        position = _skip_tags(frame, position)
    return _new(RequestHeader, (api_key, version, correlation_id, client_id, position))


MAX_REMEMBERED_BYTES: Final = 256
"""Longer client ids are decoded again for each request, to bound the memory of a connection."""

HeaderFields: TypeAlias = tuple[int, int, int, str | None, int]
"""The fields of ``RequestHeader``."""


class HeaderReader:
    """Reads the headers of one connection, whose client id rarely changes."""

    __slots__ = ("_body_at", "_client_id", "_raw")

    def __init__(self) -> None:
        self._raw = b"\xff\xff"
        """The last client id as bytes, with its length."""
        self._client_id: str | None = None
        self._body_at = _CLIENT_ID_AT
        """The position after the client id."""

    def read(self, frame: bytes) -> HeaderFields:
        """Read the header of a frame, like ``read_request_header``."""
        if frame.startswith(self._raw, _CLIENT_ID_SIZE_AT):
            api_key, version, correlation_id = _BEFORE_CLIENT_ID(frame)
            position = self._body_at
            flexible = _FLEXIBLE.get((api_key, version))
            if flexible:
                if position < len(frame) and frame[position] == 0:
                    return api_key, version, correlation_id, self._client_id, position + 1
            elif flexible is False:
                return api_key, version, correlation_id, self._client_id, position
        header = read_request_header(frame)
        stop = _CLIENT_ID_AT + max(_INT16(frame, _CLIENT_ID_SIZE_AT)[0], 0)
        if stop - _CLIENT_ID_AT <= MAX_REMEMBERED_BYTES:
            self._raw = frame[_CLIENT_ID_SIZE_AT:stop]
            self._client_id = header.client_id
            self._body_at = stop
        return header


def response_header(*, flexible: bool) -> Struct:
    """Return what packs a length and a correlation id: response header v0, or v1 without tags.

    Every flexible version has v1, except ApiVersions: a client reads that reply before it knows our
    versions.
    """
    return _RESPONSE_V1 if flexible else _RESPONSE_V0


def has_flexible_response_header(api_key: int, version: int) -> bool:
    """Return whether a response of this version has header v1."""
    return api_key != ApiKey.API_VERSIONS and API_BY_KEY[api_key].is_flexible(version)
