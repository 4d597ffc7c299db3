"""The digest that a segment carries of itself, so that an edited one is found without a manifest.

It is the file name in the header of an empty gzip member at the end of the file: readers of gzip
take several members as one stream, so they see no more than the lines. It guards against damage and
edits, not against somebody who writes a new digest as well.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

_MAGIC: Final = b"\x1f\x8b\x08\x08\0\0\0\0\0\xff"
"""Deflate, a file name and nothing else, no time, no operating system."""
_LABEL: Final = b"groupkeeper-sha256-"
_EMPTY: Final = b"\0\x03\0" + bytes(8)
"""The end of the name, an empty block, its CRC and its size."""
_HEX: Final = 64

LOG_ID_VERSION: Final = 8
"""The version of the UUIDs that name logs (RFC 9562: one's own). 0.1.0 named logs by version 4, and
its segments carry no digest."""
_VERSION_AT: Final = 12
_UUID_CHARACTERS: Final = 32

MEMBER_BYTES: Final = len(_MAGIC) + len(_LABEL) + _HEX + len(_EMPTY)
_READ_BYTES: Final = 256 * 1024


def digest_member(sha256: str) -> bytes:
    """Make the last member of a segment, by the checksum of what is before it."""
    return _MAGIC + _LABEL + sha256.encode() + _EMPTY


def digest_holds(path: Path) -> bool | None:
    """Tell whether a segment is as it was sealed; None where it carries no digest."""
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
    """Tell whether the last ``MEMBER_BYTES`` of a file are such a member."""
    return end.startswith(_MAGIC + _LABEL)


def must_carry_digest(log_id: str) -> bool:
    """Tell by the name of a log, or of a snapshot of one, whether its segments carry digests."""
    name = log_id.partition(".")[0]
    return len(name) == _UUID_CHARACTERS and name[_VERSION_AT] == str(LOG_ID_VERSION)
