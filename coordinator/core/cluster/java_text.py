"""Texts as Java reads them: what a broker takes for a number is one for us, and nothing else is."""

from __future__ import annotations

import re
from functools import cache
from math import inf
from typing import Final

from groupkeeper.coordinator.core.values import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN

_BLANKS: Final = "".join(map(chr, range(0x21)))
"""What String.trim takes for space: control characters too, and no other space of Unicode's."""
_LAST: Final = "\uffff"
"""Integer.parseInt looks at 16 bits at a time, so no digit beyond them is one."""
_MOST_DIGITS: Final = len(str(INT64_MAX))
_SPACES: Final = " \t\n\v\f\r"
"""What a regular expression of Java takes for space."""
_REAL: Final = re.compile(
    r"([+-]?(?:NaN|Infinity))"
    r"|([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?"
    r"|([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[dDfF]?"
)
"""Names, decimal numbers, and hexadecimal ones, which must have an exponent. A digit can be read in
one way alone: a long text that is no number is seen to be none at once.
"""
_DURATION: Final = re.compile(
    r"([-+]?)P(?=.*[0-9])(?:([-+]?[0-9]+)D)?(?:T(?=[-+]?[0-9])"
    r"(?:([-+]?[0-9]+)H)?(?:([-+]?[0-9]+)M)?(?:([-+]?[0-9]+)(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_UNITS_S: Final = (1, 60, 3_600, 86_400)
_SECOND_NS: Final = 10**9


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
    number = parse_long(text)
    return number if number is not None and INT32_MIN <= number <= INT32_MAX else None


def parse_long(text: str) -> int | None:
    """Read a number of 64 bits in the same way (Long.parseLong)."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isdecimal() or max(digits) > _LAST:
        return None
    digits = digits.lstrip(_zeros())
    if len(digits) > _MOST_DIGITS:
        return None
    number = int(digits or "0")
    if text[0] == "-":
        number = -number
    return number if _is_long(number) else None


def parse_double(text: str) -> float | None:
    """Read a number with a point, or one of the names that stand for one (Double.parseDouble)."""
    real = _REAL.fullmatch(trim(text))
    if real is None:
        return None
    name, decimal, hexadecimal = real.groups()
    if hexadecimal is None:
        return float(name or decimal)
    try:
        return float.fromhex(hexadecimal)
    except OverflowError:
        return -inf if hexadecimal[0] == "-" else inf


def parse_duration_ns(text: str) -> int | None:
    """Read days, hours, minutes and seconds, each with a sign of its own (Duration.parse)."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    sign, *counts, fraction = found.groups()
    seconds = 0
    for count, unit_s in zip(reversed(counts), _UNITS_S, strict=True):
        number = parse_long(count or "0")
        if number is None or not _is_long(number * unit_s):
            return None
        seconds += number * unit_s
        if not _is_long(seconds):
            return None
    nanoseconds = int((fraction or "").ljust(9, "0"))
    if (counts[-1] or "").startswith("-"):
        nanoseconds = -nanoseconds
    total = seconds * _SECOND_NS + nanoseconds
    return -total if sign == "-" else total


def _is_long(number: int) -> bool:
    return INT64_MIN <= number <= INT64_MAX


def split_list(text: str) -> list[str]:
    """Take a list of a config apart at its commas and the spaces of ASCII around them
    (ConfigDef.parseType).
    """
    text = trim(text)
    return [element.strip(_SPACES) for element in text.split(",")] if text else []
