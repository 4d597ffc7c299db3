"""Converts names of groups and topics to texts of PostgreSQL, and back (pure).

PostgreSQL stores no U+0000, and an entry of an index has at most 2,704 bytes. Ordinary names are
stored unchanged, so that people can query them.
"""

from __future__ import annotations

import hashlib
from typing import Final

MAX_KEY_BYTES: Final = 1_000
"""The longest name that is its own key in an index. The key of a longer name is the beginning of
the name with a digest."""

_KEPT_CHARS: Final = 100


def escaped(name: str) -> str:
    r"""Return a name as a text: ``\`` becomes ``\\``, and U+0000 becomes ``\0``."""
    if "\\" not in name and "\0" not in name:
        return name
    return name.replace("\\", "\\\\").replace("\0", "\\0")


def unescaped(text: str) -> str:
    """Return the name that ``escaped`` converted to this text."""
    if "\\" not in text:
        return text
    return "\\".join(part.replace("\\0", "\0") for part in text.split("\\\\"))


def key_of(name: str) -> str:
    r"""Return the key of a name in an index. The digest of a long name begins with ``\#``, which no
    escaped name contains.
    """
    text = escaped(name)
    if len(text) <= MAX_KEY_BYTES // 4 or len(text.encode()) <= MAX_KEY_BYTES:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[:_KEPT_CHARS]}\\#{digest}"
