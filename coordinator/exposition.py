"""The page of ``/metrics``: read on the loop, a little at a time, and rendered off it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from coordinator.group_metrics import FAMILIES, Family, GroupWalk, Row, Snapshot
from coordinator.histogram import Histogram
from coordinator.metrics import DEFINITIONS, NAMESPACE, Definition, Series, Source
from coordinator.runtime.loading import Slicer
from storage.sealing import Pacer

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_MS: Final = 1.0
"""Of one turn of the loop, for reading groups; with the piece under way it stays below 2 ms."""

Value: TypeAlias = float | Histogram | Series


@dataclass(frozen=True)
class Reading:
    """All numbers of one scrape, which nobody changes any more."""

    values: list[tuple[Definition, Value]]
    groups: Snapshot


class Exposition:
    """Makes the page. One scrape at a time: others wait for it."""

    def __init__(
        self, sources: Mapping[str, Source], max_series: int, walk: GroupWalk | None = None
    ) -> None:
        """Take the sources, by the name of their definition, and what reads groups, if anything."""
        unknown = sources.keys() - {definition.name for definition in DEFINITIONS}
        assert not unknown, f"not defined: {unknown}"
        self._sources = sources
        self._max_series = max_series
        self._walk = walk
        self._dropped = 0
        self._turn = asyncio.Lock()
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)

    async def page(self) -> bytes:
        """Return the page in Prometheus' text format. Holds the loop for 2 ms a turn at most."""
        async with self._turn:
            reading = self.read()
            if self._walk is not None:
                slicer = Slicer(SLICE_MS)
                for _ in self._walk.fill(reading.groups):
                    await slicer.pause()
            return await asyncio.to_thread(self.render, reading)

    def read(self) -> Reading:
        """Read every source once; to be called on the loop."""
        values: list[tuple[Definition, Value]] = []
        for definition in DEFINITIONS:
            source = self._sources.get(definition.name)
            if source is not None:
                values.append((definition, _copied(source())))
        own = sum(_size(value) for _, value in values)
        return Reading(values, Snapshot(room=max(0, self._max_series - own)))

    def render(self, reading: Reading) -> bytes:
        """Render a reading; to be called in any thread, by one caller at a time."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Families(lambda: self._families(reading)))
        return generate_latest(registry) + generate_latest(self._process)

    def _families(self, reading: Reading) -> Iterator[Metric]:
        """Stop adding series at the cap; what is ours goes first."""
        pacer = Pacer()
        left = self._max_series
        for definition, value in reading.values:
            family, shown, dropped = _family(definition, value, left)
            left -= shown
            self._dropped += dropped
            yield family
            pacer.tick()
        self._dropped += reading.groups.dropped
        definition = next(d for d in DEFINITIONS if d.name == "metrics_dropped_series")
        yield _family(definition, float(self._dropped), 1)[0]
        for described in FAMILIES:
            rows = reading.groups.rows[described.name]
            if rows:
                yield _PacedFamily(described, rows, pacer)


class _Families(Collector):
    """What a registry collects: the families of one reading."""

    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        """Name nothing in advance: registering must not render."""
        return ()

    def collect(self) -> Iterator[Metric]:
        return self._families()


class _PacedFamily(Metric):
    """A metric of many series, which are made one by one and with pauses for the loop's sake."""

    def __init__(self, family: Family, rows: list[Row], pacer: Pacer) -> None:
        super().__init__(family.name, family.help, "gauge")
        self.samples = _PacedSamples(family, rows, pacer)  # type: ignore[assignment]


class _PacedSamples:
    def __init__(self, family: Family, rows: list[Row], pacer: Pacer) -> None:
        self._family = family
        self._rows = rows
        self._pacer = pacer

    def __iter__(self) -> Iterator[Sample]:
        name, names = self._family.name, self._family.labels
        for labels, value in self._rows:
            yield Sample(name, dict(zip(names, labels, strict=True)), value)
            self._pacer.tick()


def _copied(value: Value) -> Value:
    """Return what the loop does not change while another thread renders it."""
    if isinstance(value, Histogram):
        return value.copy()
    if isinstance(value, Mapping):
        return {k: v.copy() if isinstance(v, Histogram) else v for k, v in value.items()}
    return value


def _size(value: Value) -> int:
    """Return how many series a value is."""
    if isinstance(value, Histogram):
        return len(value.counts) + 2
    if isinstance(value, Mapping):
        return sum(len(v.counts) + 2 if isinstance(v, Histogram) else 1 for v in value.values())
    return 1


def _family(definition: Definition, value: Value, room: int) -> tuple[Metric, int, int]:
    """Return the metric with at most ``room`` series, and how many were shown and left out."""
    name = f"{NAMESPACE}_{definition.name}"
    series: Series = value if isinstance(value, Mapping) else {(): value}
    if definition.kind == "histogram":
        return _histogram_family(name, definition, series, room)
    family = (CounterMetricFamily if definition.kind == "counter" else GaugeMetricFamily)(
        name, definition.help, labels=definition.labels
    )
    for labels, number in islice(series.items(), room):
        family.add_metric(list(labels), cast("float", number))
    shown = min(len(series), room)
    return family, shown, len(series) - shown


def _histogram_family(
    name: str, definition: Definition, series: Series, room: int
) -> tuple[Metric, int, int]:
    family = HistogramMetricFamily(name, definition.help, labels=definition.labels)
    shown = dropped = 0
    for labels, histogram in series.items():
        assert isinstance(histogram, Histogram)
        bounds = [*map(str, histogram.bounds), "+Inf"]
        size = _size(histogram)
        if shown + size > room:  # half a histogram is a wrong one
            dropped += size
            continue
        buckets = zip(bounds, map(float, accumulate(histogram.counts)), strict=True)
        family.add_metric(list(labels), list(buckets), histogram.total)
        shown += size
    return family, shown, dropped
