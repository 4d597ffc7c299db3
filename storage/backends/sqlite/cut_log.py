"""Notices that somebody has cut the write-ahead log (WAL) of an open database.

SQLite would write on where it was, and leave a hole before this. A start could not read beyond the
hole, and a checkpoint would copy it into the database. SQLite's index of the WAL shows how long the
WAL is, and its salt (https://sqlite.org/walformat.html#the_wal_index_header).
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, Final

from groupkeeper.storage.file_lock import (
    FileIdentity,
    close_unless_in_use,
    identity_of,
    open_file,
)

_INDEX_HEADER: Final = struct.Struct("=12x?xHI12x8s")
"""The beginning of the index: whether it is initialized, the bytes of a page (1 for 65,536), the
number of pages in the WAL, and its salt."""
_WAL_HEADER: Final = struct.Struct(">8xI4x8s8x")
"""The beginning of the WAL: the bytes of a page, and a salt. SQLite chooses another salt when it
begins the WAL anew."""
_FRAME_HEADER: Final = struct.Struct("8x8s8x")
"""What comes before each page in the WAL: the same salt."""


def is_cut(wal: Path, known: FileIdentity | None, index: Path, database: FileIdentity) -> bool:
    """Return True if the WAL is shorter than the index says, or was cut and then written on.

    In the second case the hole is found if less than half of the WAL was left.

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
        salts = _salts(descriptor, status.st_size)
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
    is_initialized, page_bytes, frames, salt = _INDEX_HEADER.unpack(header)
    if not is_initialized or not frames:
        return False
    frame_bytes = _FRAME_HEADER.size + (65_536 if page_bytes == 1 else page_bytes)
    # Pages behind these are left from an earlier use of the WAL.
    return bool(
        status.st_size < _WAL_HEADER.size + frames * frame_bytes
        or any(salts[number] != salt for number in salts if number <= frames)
    )


def _salts(descriptor: int, size: int) -> dict[int, bytes]:
    """Return the salts of the WAL itself (0) and of its pages 1, 2, 4, 8, ...

    A cut that leaves less than half also takes one of these pages. To read them all would take as
    long as a checkpoint.
    """
    page_bytes, salt = _unpacked(_WAL_HEADER, descriptor, 0)
    salts = {0: salt}
    frame_bytes = _FRAME_HEADER.size + page_bytes
    number = 1
    while page_bytes and _WAL_HEADER.size + number * frame_bytes <= size:
        at = _WAL_HEADER.size + (number - 1) * frame_bytes
        (salts[number],) = _unpacked(_FRAME_HEADER, descriptor, at)
        number *= 2
    return salts


def _unpacked(header: struct.Struct, descriptor: int, at: int) -> tuple[Any, ...]:
    """Unpack a header of the WAL. What the file lacks, even since a moment ago, is zeros."""
    return header.unpack(os.pread(descriptor, header.size, at).ljust(header.size, b"\0"))
