"""Converts names of groups and records to names of znodes (pure).

ZooKeeper refuses some characters and names (``PathUtils.validatePath``). Ordinary names are stored
unchanged, so that people can find them.
"""

from __future__ import annotations

import re
from typing import Final

from groupkeeper.storage.backends.key_value.escaping import escaped_name

_REFUSED: Final = "\x00-\x1f/\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff"
"""Characters that no name of a znode may contain. Java sees characters above U+FFFF as
surrogates."""
_BAD: Final = re.compile(f"[{_REFUSED}]")
_ESCAPED: Final = re.compile(f"[%{_REFUSED}]")


def node_name(name: str) -> str:
    """Return the name of the znode that has a group or a record. Different names have different
    znodes.

    A character that ZooKeeper refuses is written as ``%`` and two digits for each byte.
    """
    return escaped_name(name, _ESCAPED)


def is_node_name(name: str) -> bool:
    """Return True if ZooKeeper allows this name for a znode, unchanged."""
    return name not in ("", ".", "..") and not _BAD.search(name)
