"""The time, as an argument of each call of the core: the core reads no clock itself."""

from __future__ import annotations

import msgspec


class Now(msgspec.Struct, frozen=True):
    """The two clocks (docs/design.md#clocks): the monotonic one for deadlines, the wall clock for
    commit times and retention.
    """

    monotonic_ms: int
    wall_ms: int

    def wall_at(self, monotonic_ms: int) -> int:
        """Return the wall-clock time (ms) at which the monotonic clock has this value."""
        return self.wall_ms + monotonic_ms - self.monotonic_ms
