"""Read the numbers and switches of a Makefile target from the environment, and check them."""

from __future__ import annotations

import os
from math import inf


class RefusedError(Exception):
    """Raised for an invalid value in the environment. The message says what is valid."""


def whole_number(name: str, default: int, *, least: int) -> int:
    """Return the variable ``name`` as a whole number, or ``default`` if it is not set.

    Raises RefusedError if it is not a number, or less than ``least``.
    """
    text = os.environ.get(name)
    return default if text is None else as_whole_number(name, text, least=least)


def as_whole_number(name: str, text: str, *, least: int, most: int | None = None) -> int:
    """Return a text as a whole number. Raises RefusedError for any other text, and for a number out
    of range. ``name`` is for the message.
    """
    bound = inf if most is None else most
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= bound):
        end = "on" if most is None else f"to {most}"
        raise RefusedError(f"{name}={text} is refused: give a whole number from {least} {end}")
    return int(text)


def as_minutes(name: str, text: str) -> float:
    """Return a text as a number of minutes. Raises RefusedError if it is not above 0."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < inf:
        raise RefusedError(f"{name}={text} is refused: give a number above 0")
    return minutes


def switch(name: str) -> bool:
    """Return True if the variable ``name`` is 1, and False if it is 0 or not set. Raises
    RefusedError for any other value.
    """
    text = os.environ.get(name, "0")
    if text not in ("0", "1"):
        raise RefusedError(f"{name}={text} is refused: give 0 or 1")
    return text == "1"
