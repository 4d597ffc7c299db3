"""The time that a call of the core gets."""

from __future__ import annotations

from typing import NamedTuple


class Now(NamedTuple):
    """The two clocks (docs/design.md#clocks): one for deadlines, one for commit times and
    retention.
    """

    monotonic_ms: int
    wall_ms: int
