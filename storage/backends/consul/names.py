"""Converts names of groups and records to the last part of a key, and back (pure).

Consul accepts any key in a transaction. But its HTTP API cleans paths, so keys such as "a//b" and
"." could not be read. JSON cannot contain lone surrogates. So such names are escaped. Ordinary
names are stored unchanged, so that people can find them. Consul lists whole keys, so a long name is
replaced by its hash. The value under this key then contains the name.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import unquote_to_bytes

MAX_NAME_CHARS: Final = 512
"""A longer name is replaced by its hash. Consul 1.8 takes 200,000 characters, but a list of keys
would then contain such names as a whole."""

_EMPTY: Final = "%"
_HASHED: Final = "%-"
"""The beginning of a hash. No escaped name begins with it, because hexadecimal digits follow %."""
_ESCAPED: Final = re.compile(r"[^A-Za-z0-9._~:@+=,!()*$'-]")


def key_name(name: str) -> str:
    """Return the last part of the key for a name. Different names have different keys."""
    escaped = escaped_name(name)
    if len(escaped) > MAX_NAME_CHARS:
        return _HASHED + hashlib.sha256(escaped.encode()).hexdigest()
    return escaped


def is_hashed(key: str) -> bool:
    """Return True if the name is not in the key, but in the value."""
    return key.startswith(_HASHED)


def escaped_name(name: str) -> str:
    """Return a name with each unusual character as ``%`` and two digits for each byte."""
    if not name:
        return _EMPTY
    if name in (".", ".."):
        return "%2E" * len(name)
    return _ESCAPED.sub(lambda found: _percent(found[0]), name)


def plain_name(escaped: str) -> str:
    """Return the original of an escaped name. This is the inverse of ``escaped_name``."""
    if escaped == _EMPTY:
        return ""
    return unquote_to_bytes(escaped).decode("utf-8", "surrogatepass")


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
