"""Texts as Java reads them: what a broker takes for a number is one for us, and nothing else is."""

from __future__ import annotations

from functools import cache
from typing import Final

from coordinator.core.values import INT32_MAX, INT32_MIN

_BLANKS: Final = "".join(map(chr, range(0x21)))
"""What String.trim takes for space: control characters too, and no other space of Unicode's."""
_LAST: Final = "\uffff"
"""Integer.parseInt looks at 16 bits at a time, so no digit beyond them is one."""
_MOST_DIGITS: Final = len(str(INT32_MAX))


@cache
def _zeros() -> str:
    """The zeros of all scripts, looked for when a number is first read: no start waits for it."""
    return "".join(c for c in map(chr, range(0x10000)) if c.isdecimal() and int(c) == 0)


def trim(text: str) -> str:
    """Take the spaces off both ends (String.trim)."""
    return text.strip(_BLANKS)


def parse_int(text: str) -> int | None:
    """Read a number of 32 bits, in the digits of any script; None where it is none
    (Integer.parseInt).
    """
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isdecimal() or max(digits) > _LAST:
        return None
    digits = digits.lstrip(_zeros())
    if len(digits) > _MOST_DIGITS:
        return None
    number = int(digits or "0")
    if text[0] == "-":
        number = -number
    return number if INT32_MIN <= number <= INT32_MAX else None
