"""The digest of a segment (a file of events), stored in the file itself. With it, a changed file is
recognized even without the manifest.

The digest is the file name in the header of an empty gzip member at the end of the file. Readers of
gzip read several members as one stream, so they see only the lines. The digest reveals damage and
edits, unless somebody also writes a new digest.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

_MAGIC: Final = b"\x1f\x8b\x08\x08\0\0\0\0\0\xff"
"""A gzip header: deflate, with a file name, without time and operating system."""
_LABEL: Final = b"groupkeeper-sha256-"
_EMPTY: Final = b"\0\x03\0" + bytes(8)
"""The end of the name, an empty block, its CRC and its size."""
_HEX: Final = 64

LOG_ID_VERSION: Final = 8
"""The version of the UUIDs that name logs. RFC 9562 leaves version 8 to applications. 0.1.0 used
version 4, and its segments have no digest."""
_VERSION_AT: Final = 12
_UUID_CHARACTERS: Final = 32

MEMBER_BYTES: Final = len(_MAGIC) + len(_LABEL) + _HEX + len(_EMPTY)
_READ_BYTES: Final = 256 * 1024


def digest_member(sha256: str) -> bytes:
    """Return the last gzip member of a segment, for the checksum of the bytes before it."""
    return _MAGIC + _LABEL + sha256.encode() + _EMPTY


def digest_holds(path: Path) -> bool | None:
    """Return True if a segment is unchanged since it was sealed, and False if not. Return None if
    it has no digest.
    """
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        file.seek(max(0, size - MEMBER_BYTES))
        member = file.read()
        if not carries_digest(member):
            return None
        file.seek(0)
        left = size - MEMBER_BYTES
        while left and (data := file.read(min(left, _READ_BYTES))):
            digest.update(data)
            left -= len(data)
    return member == digest_member(digest.hexdigest())


def carries_digest(end: bytes) -> bool:
    """Return True if the last ``MEMBER_BYTES`` of a file hold a digest."""
    return end.startswith(_MAGIC + _LABEL)


def must_carry_digest(log_id: str) -> bool:
    """Return True if the segments and snapshots of a log must have digests. The version of the
    log's id decides this.
    """
    name = log_id.partition(".")[0]
    return len(name) == _UUID_CHARACTERS and name[_VERSION_AT] == str(LOG_ID_VERSION)
