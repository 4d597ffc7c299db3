"""The page of ``/metrics``: its numbers are read on the loop in slices, and rendered in a
thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from groupkeeper.coordinator.daemon.group_metrics import MetricsWalk, Snapshot
from groupkeeper.coordinator.daemon.metrics import DEFINITIONS, Definition, Source, Value, series_of
from groupkeeper.coordinator.runtime.loading import Slicer
from groupkeeper.coordinator.runtime.stats import Histogram

if TYPE_CHECKING:
    from groupkeeper.coordinator.daemon.rendering import Renderer

SLICE_MS: Final = 1.0
"""How long groups are read before the loop may run other work. The clock is checked after each
``PIECE_SERIES`` series, so reading may take longer than this, but less than 2 ms.
"""

RESERVED_SERIES: Final = 7
"""Series that are always shown: six of the process, and the number of series left out."""


@dataclass(frozen=True)
class Reading:
    """All numbers of one scrape. ``groups`` is filled after the other values were read."""

    values: list[tuple[Definition, Value]]
    groups: Snapshot


class Exposition:
    """Makes the page of ``/metrics``, for one scrape at a time. Other scrapes wait."""

    def __init__(
        self, sources: Mapping[str, Source], max_series: int, walk: MetricsWalk | None = None
    ) -> None:
        """``sources`` maps names of metrics to sources of their values. ``walk`` reads groups."""
        unknown = sources.keys() - {definition.name for definition in DEFINITIONS}
        assert not unknown, f"not defined: {unknown}"
        self._sources = sources
        self._max_series = max(0, max_series - RESERVED_SERIES)
        self._walk = walk
        self._turn = asyncio.Lock()
        self._renderer: Renderer | None = None

    async def page(self) -> bytes:
        """Return the page in Prometheus' text format. Blocks the loop for at most 2 ms at once."""
        async with self._turn:
            reading = self.read()
            if self._walk is not None:
                slicer = Slicer(SLICE_MS)
                for _ in self._walk.fill(reading.groups):
                    await slicer.pause()
            return await asyncio.to_thread(self.render, reading)

    def read(self) -> Reading:
        """Return the current value of every source, and an empty snapshot of groups. Call this on
        the loop.
        """
        values: list[tuple[Definition, Value]] = []
        for definition in DEFINITIONS:
            source = self._sources.get(definition.name)
            if source is not None:
                values.append((definition, _copied(source())))
        own = sum(series_of(value) for _, value in values)
        return Reading(values, Snapshot(room=max(0, self._max_series - own)))

    def render(self, reading: Reading) -> bytes:
        """Return the page of a reading. Any thread may call this, but only one at a time."""
        if self._renderer is None:
            # imported here, so that the start of the daemon does not wait for the import
            from groupkeeper.coordinator.daemon.rendering import Renderer

            self._renderer = Renderer(self._max_series)
        return self._renderer.page(reading.values, reading.groups)


def _copied(value: Value) -> Value:
    """Return a value that stays the same while another thread renders it."""
    if isinstance(value, Histogram):
        return value.copy()
    if isinstance(value, Mapping):
        return {k: v.copy() if isinstance(v, Histogram) else v for k, v in value.items()}
    return value
