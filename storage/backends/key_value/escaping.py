"""Escapes names of groups and records, so that a store accepts them in a key or a path (pure)."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

_EMPTY: Final = "%"


def escaped_name(name: str, unusual: re.Pattern[str]) -> str:
    """Return a name with each unusual character as ``%`` and two digits for each byte. ``unusual``
    matches one such character, and also matches ``%``. Different names stay different.
    """
    if not name:
        return _EMPTY
    if name in (".", ".."):
        return "%2E" * len(name)
    return unusual.sub(lambda found: _percent(found[0]), name)


def plain_name(escaped: str) -> str:
    """Return the original of an escaped name. This is the inverse of ``escaped_name``."""
    if escaped == _EMPTY:
        return ""
    if "%" not in escaped:
        return escaped
    return unquote_to_bytes(escaped).decode("utf-8", "surrogatepass")


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
