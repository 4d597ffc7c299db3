"""Splits the bytes of a client into requests. Requests for us are gathered whole. Most requests for
a broker pass as they arrive.

Only the first bytes of a passed request are kept until they are complete: its header, and of a
Produce also its acks. So a Produce of 100 MB takes no more memory than one of 100 bytes. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from groupkeeper.coordinator.gateway.apis import PRODUCE, Treatment
from groupkeeper.coordinator.gateway.fed_bytes import Bytes, FedBytes
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import PREFIX_BYTES, check_length
from groupkeeper.protocol.reader import MAX_HEADER_TAGS
from groupkeeper.protocol.versions import API_BY_KEY, ApiKey

_BEGINNING: Final = Struct(">ihhi")
"""Size, API key, version and correlation id."""
_INT16: Final = Struct(">h")
_MIN_BYTES: Final = 10
"""The shortest header: key, version, correlation id and the length of the client id."""
MAX_HEAD_BYTES: Final = 131_072
"""The longest beginning of a Produce up to its acks. A client id and a transactional id have at
most 32,767 bytes each. The rest is room for tagged fields, of which clients send none."""
COMMON_HEAD_BYTES: Final = 1_024
"""Nearly all Produce requests have their acks within this many bytes. So only these are copied to
find the acks.
"""
_FLEXIBLE_PRODUCE: Final = API_BY_KEY[ApiKey.PRODUCE].first_flexible
_WITH_TRANSACTIONAL_ID: Final = 3
"""The first version of Produce that has a transactional id."""
_VARINT_BYTES: Final = 5


class Passed(NamedTuple):
    """Bytes for the broker. They begin a request if ``key`` is not -1."""

    data: Bytes
    key: int = -1
    version: int = -1
    correlation_id: int = -1
    gets_reply: bool = True
    """False for a Produce with acks=0."""


class WholeRequest(NamedTuple):
    """A request whose bytes have all arrived."""

    frame: bytes
    key: int
    version: int
    treatment: Treatment


Piece: TypeAlias = Passed | WholeRequest


class RequestStream(FedBytes):
    """The bytes of one client. After a ProtocolError, do not feed or take any more bytes."""

    __slots__ = ("_max_bytes", "_max_passed_bytes", "_treatment")

    def __init__(
        self,
        treatment: Callable[[int, int], Treatment | None],
        max_bytes: int,
        max_passed_bytes: int,
    ) -> None:
        """``treatment`` returns the treatment of a (key, version); None if it is not served.

        ``max_bytes`` limits a request that is gathered here, ``max_passed_bytes`` a passed one.
        """
        super().__init__()
        self._treatment = treatment
        self._max_bytes = max_bytes
        self._max_passed_bytes = max_passed_bytes

    @property
    def is_passing(self) -> bool:
        """True if only a part of a request was passed to the broker so far."""
        return self._passing > 0

    @property
    def untaken_bytes(self) -> int:
        """The number of bytes that can be taken now, or that begin the next request."""
        return len(self._data) - self._position

    @property
    def is_incomplete(self) -> bool:
        """True if the rest of a request has not arrived."""
        return bool(self._waiting) or self._passing > 0

    @property
    def next_key(self) -> int | None:
        """The API key of the next request. None if it is not known yet, or if the present request
        has not passed completely.
        """
        if self._passing or self.untaken_bytes < PREFIX_BYTES + 2:
            return None
        key: int = _INT16.unpack_from(self._data, self._position + PREFIX_BYTES)[0]
        return key

    def forget(self) -> None:
        """Drop the bytes that were not taken."""
        self._data, self._position = b"", 0
        self._waiting = bytearray()

    def take(self) -> Piece | None:
        """Return the next bytes for the broker, or the next whole request. None if more bytes are
        needed.

        Raises ProtocolError if the bytes are no request that is served.
        """
        data, start = self._data, self._position
        left = len(data) - start
        if not left:
            return None
        if self._passing:
            taken = min(left, self._passing)
            self._passing -= taken
            return Passed(self._view(taken))
        if left >= PREFIX_BYTES:
            check_length(data[start : start + PREFIX_BYTES], self._max_passed_bytes)
        if left < _BEGINNING.size:
            self._wait(_BEGINNING.size)
            return None
        return self._begin(start, left)

    def _begin(self, start: int, left: int) -> Piece | None:
        """Begin a request, of which at least the fixed part of the header has arrived."""
        data = self._data
        size, key, version, correlation_id = _BEGINNING.unpack_from(data, start)
        if size < _MIN_BYTES:
            raise ProtocolError("bad_header", "the frame is shorter than a request header")
        treatment = self._treatment(key, version)
        if treatment is None:
            raise _not_served(key, version)
        whole = PREFIX_BYTES + size
        if _is_gathered(key, treatment):
            check_length(data[start : start + PREFIX_BYTES], self._max_bytes)
            if left >= whole:
                return self._whole(whole, treatment)
            self._wait(whole)
            return None
        head_bytes = min(whole, MAX_HEAD_BYTES)
        acks = self._acks(start, head_bytes, version) if key == PRODUCE else 1
        if acks is None:
            # Read the beginning again after it has doubled, not after each byte. All bytes up to
            # here belong to this request, so no client waits for an answer before it sends them.
            self._wait(min(head_bytes, 2 * left))
            return None
        taken = min(left, whole)
        self._passing = whole - taken
        return Passed(self._view(taken), key, version, correlation_id, acks != 0)

    def _acks(self, start: int, head_bytes: int, version: int) -> int | None:
        """Return the acks of a Produce; None if more bytes are needed."""
        data = self._data
        head = data[start : start + min(head_bytes, COMMON_HEAD_BYTES)]
        acks = acks_of(head, version)
        if acks is None and head_bytes > COMMON_HEAD_BYTES:
            head = data[start : start + head_bytes]
            acks = acks_of(head, version)
        if acks is None and len(head) == head_bytes:
            raise ProtocolError("bad_header", "a Produce without acks")
        return acks

    def _whole(self, size: int, treatment: Treatment) -> WholeRequest:
        frame = self._cut(size)
        _, key, version, _ = _BEGINNING.unpack_from(frame)
        return WholeRequest(frame, key, version, treatment)


def _is_gathered(key: int, treatment: Treatment) -> bool:
    """Return True if the whole request must be read before any byte of it is passed on. If only the
    reply of a request is changed, the result is False, except for Metadata: we answer it ourselves
    if no broker can be reached.
    """
    if treatment is Treatment.PASSED:
        return False
    return treatment is not Treatment.REWRITTEN or key == ApiKey.METADATA


def acks_of(head: bytes, version: int) -> int | None:
    """Return the acks of a Produce; None if the bytes end before them."""
    position = _BEGINNING.size
    if len(head) < position + 2:
        return None
    position += 2 + max(_INT16.unpack_from(head, position)[0], 0)
    if version >= _FLEXIBLE_PRODUCE:
        after_tags = _skip_tags(head, position)
        if after_tags is None:
            return None
        position = after_tags
    if version >= _WITH_TRANSACTIONAL_ID:
        if version >= _FLEXIBLE_PRODUCE:
            read = _varint(head, position)
            if read is None:
                return None
            length, position = read
            position += max(length - 1, 0)
        else:
            if len(head) < position + 2:
                return None
            position += 2 + max(_INT16.unpack_from(head, position)[0], 0)
    if len(head) < position + 2:
        return None
    acks: int = _INT16.unpack_from(head, position)[0]
    return acks


def _skip_tags(head: bytes, position: int) -> int | None:
    read = _varint(head, position)
    if read is None:
        return None
    count, position = read
    if count > MAX_HEADER_TAGS:
        raise ProtocolError("bad_header", f"a header with {count} tagged fields")
    for _ in range(count):
        tag = _varint(head, position)
        size = None if tag is None else _varint(head, tag[1])
        if size is None or size[0] > len(head):
            return None
        position = size[0] + size[1]
    return position


def _varint(head: bytes, position: int) -> tuple[int, int] | None:
    """Return an unsigned varint and where it ends; None if the bytes end before it."""
    value = 0
    for index in range(_VARINT_BYTES):
        if position + index >= len(head):
            return None
        byte = head[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise ProtocolError("bad_header", "a varint of more than 5 bytes")


def _not_served(key: int, version: int) -> ProtocolError:
    return ProtocolError("unsupported_version", f"API {key} v{version} is not served")
