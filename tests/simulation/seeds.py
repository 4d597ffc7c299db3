"""The seeds that ``make test`` lives: the first ones, and for good those that found something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

IN_TESTS: Final = 50
"""Worlds that every ``make test`` lives; ``make sim`` begins behind them."""

FOUND: Final[Mapping[int, str]] = {}
"""Seed -> what it found in the coordinator. A change of the worlds themselves makes another world
of every seed: what was found has a test of its own as well.
"""
