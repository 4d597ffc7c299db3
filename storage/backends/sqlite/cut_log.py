"""Notices that somebody has cut the write-ahead log (WAL) of an open database.

SQLite would write on where it was, so the beginning of the WAL would be a hole. A start could not
read it, and a checkpoint would copy the hole into the database. SQLite's index of the WAL shows how
long the WAL is, and how it begins (https://sqlite.org/walformat.html#the_wal_index_header).
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

from groupkeeper.storage.file_lock import (
    FileIdentity,
    close_unless_in_use,
    identity_of,
    open_file,
)

_INDEX_HEADER: Final = struct.Struct("=12x?xHI12x8s")
"""The beginning of the index: whether it is initialized, the bytes of a page (1 for 65,536), the
number of pages in the WAL, and its salt."""
_FRAME_HEADER_BYTES: Final = 24
"""The bytes before each page in the WAL."""
_SALT_AT: Final = 16
_SALT_BYTES: Final = 8
"""The salt in the header of the WAL. SQLite chooses another one when it begins the WAL anew."""


def is_cut(wal: Path, known: FileIdentity | None, index: Path, database: FileIdentity) -> bool:
    """Return True if the WAL is shorter than the index says, or does not begin as it says: it was
    cut to nothing, and then written on.

    ``known`` is the identity of the WAL. If the path leads to another file, the result is False.
    Raises OSError if a file cannot be read.
    """
    # SQLite also shortens the WAL and begins it anew, but before this it changes the index.
    looks = (_looks_cut(wal, known, index, database) for _ in range(2))
    return all(looks)


def _looks_cut(wal: Path, known: FileIdentity | None, index: Path, database: FileIdentity) -> bool:
    descriptor = os.open(wal, os.O_RDONLY | os.O_CLOEXEC)  # SQLite has no locks on this file
    try:
        status = os.fstat(descriptor)
        salt = os.pread(descriptor, _SALT_BYTES, _SALT_AT)
    finally:
        os.close(descriptor)
    if identity_of(status) != known:
        return False
    descriptor = open_file(index, database)
    try:
        header = os.pread(descriptor, _INDEX_HEADER.size, 0)
    finally:
        close_unless_in_use(descriptor, database)
    if len(header) < _INDEX_HEADER.size:
        return False
    is_initialized, page_bytes, frames, known_salt = _INDEX_HEADER.unpack(header)
    if not is_initialized or not frames:
        return False
    frame_bytes = _FRAME_HEADER_BYTES + (65_536 if page_bytes == 1 else page_bytes)
    return bool(status.st_size < frames * frame_bytes or salt != known_salt)
