"""Marks a database file that is complete: no write-ahead log (WAL) has anything that it lacks.

A close sets the mark after it has copied the whole WAL, and ``storage backup`` sets it in the copy.
A start removes it, durably, before SQLite opens the file, so before it acknowledges anything. So if
a marked file lies beside a WAL, this WAL belongs to a file that somebody has replaced by a backup.
SQLite would apply it to the backup (docs/decisions/0045-complete-files.md).

The mark is a part of the schema version, which is in the header of the file
(https://sqlite.org/fileformat2.html#user_version_number). A version of groupkeeper that does not
know the mark would not remove it. But it takes the version for a newer one, and refuses the file.
"""

from __future__ import annotations

import os
from typing import Final

COMPLETE: Final = 1_000
"""This number is added to the schema version of a complete file."""

HEADER_BYTES: Final = 100
_VERSION_AT: Final = 60
_VERSION_BYTES: Final = 4
_MAGIC: Final = b"SQLite format 3\0"


def is_complete(descriptor: int) -> bool:
    """Return True if the file has the mark. ``descriptor`` is that of the database file."""
    return _schema_version(descriptor) >= COMPLETE


def mark_complete(descriptor: int) -> None:
    """Set the mark. The caller knows that the file is complete, and that SQLite does not use it."""
    version = _schema_version(descriptor)
    if 0 < version < COMPLETE:
        _write(descriptor, version + COMPLETE)


def unmark(descriptor: int) -> None:
    """Remove the mark, and make this durable. Raises OSError."""
    _write(descriptor, _schema_version(descriptor) - COMPLETE)
    os.fsync(descriptor)


def _schema_version(descriptor: int) -> int:
    """Return the number in the file itself, without its WAL; 0 if this is no database."""
    header = os.pread(descriptor, HEADER_BYTES, 0)
    if len(header) < HEADER_BYTES or not header.startswith(_MAGIC):
        return 0
    return int.from_bytes(header[_VERSION_AT : _VERSION_AT + _VERSION_BYTES], "big")


def _write(descriptor: int, version: int) -> None:
    os.pwrite(descriptor, version.to_bytes(_VERSION_BYTES, "big"), _VERSION_AT)
