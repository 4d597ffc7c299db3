"""What a target of the Makefile is asked for: sensible numbers and switches, or a refusal."""

from __future__ import annotations

import os
from math import inf


class RefusedError(Exception):
    """What the environment asks for makes no sense; the message says what to give instead."""


def whole_number(name: str, default: int, *, least: int) -> int:
    """The whole number of that name, ``default`` where there is none; raises RefusedError."""
    text = os.environ.get(name)
    return default if text is None else as_whole_number(name, text, least=least)


def as_whole_number(name: str, text: str, *, least: int, most: int | None = None) -> int:
    """The whole number that was given by that name; raises RefusedError."""
    bound = inf if most is None else most
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= bound):
        end = "on" if most is None else f"to {most}"
        raise RefusedError(f"{name}={text} is refused: give a whole number from {least} {end}")
    return int(text)


def as_minutes(name: str, text: str) -> float:
    """How many minutes were given by that name; raises RefusedError."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < inf:
        raise RefusedError(f"{name}={text} is refused: give a number above 0")
    return minutes


def switch(name: str) -> bool:
    """Whether the switch of that name is on, off where there is none; raises RefusedError."""
    text = os.environ.get(name, "0")
    if text not in ("0", "1"):
        raise RefusedError(f"{name}={text} is refused: give 0 or 1")
    return text == "1"
