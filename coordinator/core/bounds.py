"""Declares the default and the bounds of a numeric setting in one place."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, TypeVar

_Number = TypeVar("_Number", int, float)


class Bounds(NamedTuple):
    """The least and the greatest value that a number may have. If ``most`` is None, there is no
    greatest value.
    """

    least: int
    most: int | None = None


def number(default: _Number, least: int, most: int | None = None) -> _Number:
    """Declare a numeric field of a dataclass, with its default and its bounds."""
    return dataclasses.field(default=default, metadata={"bounds": Bounds(least, most)})


def bounds_of(settings: Any) -> dict[str, Bounds]:
    """Return the bounds of those fields of a dataclass that were declared with ``number``."""
    return {
        each.name: each.metadata["bounds"]
        for each in dataclasses.fields(settings)
        if "bounds" in each.metadata
    }
