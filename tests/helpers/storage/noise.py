"""Text that hardly becomes smaller when a store compresses it."""

from __future__ import annotations

import random
import string

_CHARACTERS = "".join(c for c in string.printable if c.isprintable() and c not in '"\\')
_SHARE = 0.83
"""The size of this text when it is compressed, by its size before."""


def noise(size: int) -> str:
    """Return the same text at each call, which takes about ``size`` bytes when compressed."""
    return "".join(random.Random(0).choices(_CHARACTERS, k=round(size / _SHARE)))
