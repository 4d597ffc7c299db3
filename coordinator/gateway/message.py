"""Finds the fields of a request or reply in its bytes, without decoding the whole message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct, error
from typing import Final, TypeAlias, TypeVar

from groupkeeper.protocol.codec import request_class, response_class
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.fields import EntityClass
from groupkeeper.protocol.frames import PREFIX_BYTES
from groupkeeper.protocol.packing import PACK_INT32
from groupkeeper.protocol.reader import Input
from groupkeeper.protocol.spans import Excerpt, excerpts, shape

Edit: TypeAlias = tuple[int, int, bytes]
"""(start, stop, new): the bytes of a frame from start to stop are replaced by new."""

_CORRELATION_ID_BYTES: Final = 4
_BEFORE_CLIENT_ID_BYTES: Final = 8
"""Key, version and correlation id."""
_INT16: Final = Struct(">h").unpack_from

Result = TypeVar("Result")


class WireMessage:
    """A whole frame while it is read, field by field."""

    def __init__(self, entity_type: EntityClass, frame: bytes, max_elements: int) -> None:
        """Begin after the length of the frame. The caller skips the header."""
        self.frame = frame
        self.shape = shape(entity_type)
        self.source = Input(frame, PREFIX_BYTES, max_elements)
        self.has_flexible_header: bool = entity_type.__header_schema__.__flexible__
        self._rest = iter(self.shape.fields)
        self._next = ""

    def skip_to(self, name: str) -> int:
        """Skip the fields before ``name``. Return the position of this field in the frame. The
        caller reads the field.
        """
        if name != self._next:
            self._next = name
            for field in self._rest:
                if field == name:
                    break
                self.shape.skip_field(field, self.source)
        return self.source.position

    def excerpts(self, name: str) -> Iterator[Excerpt]:
        """Skip the fields before an array, and yield its entities."""
        self.skip_to(name)
        return excerpts(self.shape, name, self.source)

    def elements(self, name: str) -> tuple[int, bytes]:
        """Skip the fields before an array. Return the number of its elements, and their bytes."""
        start = self.skip_to(name)
        self.shape.skip_field(name, self.source)
        before = Input(self.frame, start, self.source.max_elements)
        count = self.shape.count(before)
        return count, self.frame[before.position : self.source.position]

    def replaced(self, edits: Iterable[Edit]) -> bytes:
        """Return the frame with these edits and its new length. The caller sorts the edits by
        position.
        """
        pieces = [b""]
        position = PREFIX_BYTES
        for start, stop, new in edits:
            pieces += [self.frame[position:start], new]
            position = stop
        pieces.append(self.frame[position:])
        pieces[0] = PACK_INT32(sum(map(len, pieces)))
        return b"".join(pieces)


def reply_of(key: int, version: int, frame: bytes, max_elements: int) -> WireMessage:
    """Return a reply whose header is already skipped."""
    message = WireMessage(response_class(key, version), frame, max_elements)
    message.source.take_skipped(_CORRELATION_ID_BYTES)
    if message.has_flexible_header:
        message.source.skip_tags()
    return message


def request_of(key: int, version: int, frame: bytes, max_elements: int) -> WireMessage:
    """Return a request whose header is already skipped."""
    message = WireMessage(request_class(key, version), frame, max_elements)
    source = message.source
    source.take_skipped(_BEFORE_CLIENT_ID_BYTES)
    client_id_bytes = _INT16(frame, source.position)[0]
    source.take_skipped(2 + max(client_id_bytes, 0))
    if message.has_flexible_header:
        source.skip_tags()
    return message


ENDS_EARLY: Final = (IndexError, error)
"""The errors that a read beyond the end of a message raises."""


def ends_early(what: str) -> ProtocolError:
    """Return the error of a message that ends early. ``what`` names the message."""
    return ProtocolError("truncated", f"{what} ends early")


def checked(read: Callable[[], Result], what: str) -> Result:
    """Return the result of a function that reads a message.

    Raises ProtocolError if the message ends early.
    """
    try:
        return read()
    except ENDS_EARLY:
        raise ends_early(what) from None
