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

from groupkeeper.storage.backends.key_value.escaping import escaped_name

MAX_NAME_CHARS: Final = 512
"""A longer name is replaced by its hash. Consul 1.8 takes 200,000 characters, but a list of keys
would then contain such names as a whole."""

_HASHED: Final = "%-"
"""The beginning of a hash. No escaped name begins with it, because hexadecimal digits follow %."""
UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._~:@+=,!()*$'-]")


def key_name(name: str) -> str:
    """Return the last part of the key for a name. Different names have different keys."""
    escaped = escaped_name(name, UNUSUAL)
    if len(escaped) > MAX_NAME_CHARS:
        return _HASHED + hashlib.sha256(escaped.encode()).hexdigest()
    return escaped


def is_hashed(key: str) -> bool:
    """Return True if the name is not in the key, but in the value."""
    return key.startswith(_HASHED)
