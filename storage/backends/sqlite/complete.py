"""Marks a database file that is complete: no write-ahead log (WAL) has anything that it lacks.

A close sets the mark after it has copied the whole WAL, and ``storage backup`` sets it in the copy.
A start removes it, durably, before SQLite opens the file, so before it acknowledges anything. So if
a marked file lies beside a WAL, this WAL belongs to a file that somebody has replaced by a backup.
SQLite would apply it to the backup (docs/decisions/0045-complete-files.md).

Only files of groupkeeper are read so, for other programs use large schema versions themselves.

The mark is a part of the schema version, which is in the header of the file
(https://sqlite.org/fileformat2.html#user_version_number). A version of groupkeeper that does not
know the mark would not remove it. But it takes the version for a newer one, and refuses the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.file_lock import close_unless_in_use, identity_of, open_file

APPLICATION_ID: Final = 0x67726B70
"""Marks a file as ours: "grkp" in its header (``PRAGMA application_id``)."""

COMPLETE: Final = 1_000
"""This number is added to the schema version of a complete file."""

_HEADER_BYTES: Final = 100
_VERSION_AT: Final = 60
_VERSION_BYTES: Final = 4
_APPLICATION_AT: Final = 68
_APPLICATION: Final = APPLICATION_ID.to_bytes(4, "big")
_MAGIC: Final = b"SQLite format 3\0"


def is_complete(descriptor: int) -> bool:
    """Return True if the file has the mark. ``descriptor`` is that of the database file."""
    return schema_version(descriptor) >= COMPLETE


def mark_complete(descriptor: int) -> None:
    """Set the mark. The caller knows that the file is complete, and that SQLite does not use it."""
    version = schema_version(descriptor)
    if 0 < version < COMPLETE:
        _write(descriptor, version + COMPLETE)


def unmark(descriptor: int) -> None:
    """Remove the mark, and make this durable. Raises OSError.

    The header is also written if it has no mark: an earlier try may have failed to sync. Then the
    kernel's copy of the page has no mark and counts as written, and the disk has the mark.
    """
    version = schema_version(descriptor)
    if version > 0:
        _write(descriptor, version % COMPLETE)
        os.fsync(descriptor)


def schema_version(descriptor: int) -> int:
    """Return the number in the file itself, without its WAL; 0 if the file is not ours."""
    header = os.pread(descriptor, _HEADER_BYTES, 0)
    if not (header.startswith(_MAGIC) and header.startswith(_APPLICATION, _APPLICATION_AT)):
        return 0
    return int.from_bytes(header[_VERSION_AT : _VERSION_AT + _VERSION_BYTES], "big")


def refuse_stale_wal(path: Path) -> None:
    """Raise StoreRefused if a reader of this file would read a WAL that belongs to another one.

    A start sets such a WAL aside, but a reader changes nothing. Raises OSError if a file cannot be
    read.
    """
    identity = identity_of(os.stat(path))
    descriptor = open_file(path, identity, os.O_RDONLY)
    try:
        # If a daemon starts or stops meanwhile, one of the three is false.
        is_stale = is_complete(descriptor) and _has_wal(path) and is_complete(descriptor)
    finally:
        close_unless_in_use(descriptor, identity)
    if is_stale:
        raise StoreRefused(
            f"{path}: is a complete copy, so {path.name}-wal beside it belongs to another file; "
            "start the daemon, which renames it, or delete it"
        )


def unused_name(path: Path, ending: str) -> Path:
    """Return a name that no file has: the path with this ending, and a number if it is needed."""
    found = path.with_name(path.name + ending)
    number = 1
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}{ending}{number}")
    return found


def _has_wal(path: Path) -> bool:
    try:
        real = path.resolve()  # SQLite follows symbolic links, too
        return os.stat(real.with_name(real.name + "-wal")).st_size > 0
    except FileNotFoundError:
        return False


def _write(descriptor: int, version: int) -> None:
    os.pwrite(descriptor, version.to_bytes(_VERSION_BYTES, "big"), _VERSION_AT)
