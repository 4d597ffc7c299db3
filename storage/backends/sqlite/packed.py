"""The payload of a row of the log, as it is stored (pure): text, or compressed.

A payload of 64 commits takes nine pages as text, and two compressed. Each page is written to the
write-ahead log, copied into the database, read by the process that seals, and freed again. So the
writer needs a third less CPU time for such an append, although it compresses
(docs/reports/2026-11-30-packed-rows.md).
"""

from __future__ import annotations

from typing import Final

from isal import isal_zlib
from isal.igzip_lib import IsalError

from groupkeeper.storage.base import StorageError

PACKED_FROM_BYTES: Final = 1_024
"""Smaller payloads stay text. They would take as many pages compressed, and a person can read them
with the ``sqlite3`` program."""

_LEVEL: Final = 0
"""The level of ISA-L's deflate. It needs 21 us for 36 KB, and level 1 needs 28 us for a result that
takes as many pages."""
_ZLIB: Final = b"x"
"""The first byte of a compressed payload. Text begins with "{"."""


def pack(payload: bytes) -> str | bytes:
    """Return the value for the column ``payload``."""
    if len(payload) < PACKED_FROM_BYTES:
        return payload.decode()
    return isal_zlib.compress(payload, _LEVEL)


def unpack(value: bytes) -> bytes:
    """Return the payload of a value of the column, which was read as a blob.

    Raises StorageError if a compressed payload is damaged: a zlib stream has a checksum.
    """
    if not value.startswith(_ZLIB):
        return value
    try:
        return isal_zlib.decompress(value)
    except IsalError as error:  # type: ignore[misc]  # isal declares an instance
        raise StorageError(f"a log row cannot be read: {error}") from error
