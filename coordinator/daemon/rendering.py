"""Renders the numbers of a scrape as Prometheus' text format, in its own thread.

Separate from ``exposition``, so that a start does not wait for the import of prometheus_client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING, cast

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from groupkeeper.coordinator.daemon.group_metrics import FAMILIES, Family, Row, Snapshot
from groupkeeper.coordinator.daemon.metrics import (
    DEFINITIONS,
    NAMESPACE,
    Definition,
    Series,
    Value,
    series_of,
)
from groupkeeper.coordinator.runtime.stats import Histogram
from groupkeeper.storage.event_log.sealing.sealer import Pacer

if TYPE_CHECKING:
    from collections.abc import Callable


class Renderer:
    """Renders one reading after another, and counts the series left out."""

    def __init__(self, max_series: int) -> None:
        self._max_series = max_series
        self._dropped = 0
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)

    def page(self, values: Sequence[tuple[Definition, Value]], groups: Snapshot) -> bytes:
        """Return the page of a reading. Any thread may call this, but only one at a time."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Families(lambda: self._families(values, groups)))
        return generate_latest(registry) + generate_latest(self._process)

    def _families(
        self, values: Sequence[tuple[Definition, Value]], groups: Snapshot
    ) -> Iterator[Metric]:
        """Yield the metrics with at most ``max_series`` series. Our own metrics come before those
        of the groups.
        """
        pacer = Pacer()
        left = self._max_series
        for definition, value in values:
            family, shown, dropped = _family(definition, value, left)
            left -= shown
            self._dropped += dropped
            yield family
            pacer.tick()
        self._dropped += groups.dropped
        definition = next(d for d in DEFINITIONS if d.name == "metrics_dropped_series")
        yield _family(definition, float(self._dropped), 1)[0]
        for described in FAMILIES:
            rows = groups.rows[described.name]
            if rows:
                yield _PacedFamily(described, rows, pacer)


class _Families(Collector):
    """The metric families of one reading, in the form of a collector of prometheus_client."""

    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        """Return no metrics. Otherwise the registry would render all of them once more."""
        return ()

    def collect(self) -> Iterator[Metric]:
        return self._families()


class _PacedFamily(Metric):
    """A metric of many series. They are created one by one, with pauses in which the thread of the
    loop can run.
    """

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


def _family(definition: Definition, value: Value, room: int) -> tuple[Metric, int, int]:
    """Return the metric with at most ``room`` series, the number of series in it, and the number of
    series left out.
    """
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
        size = series_of(histogram)
        if shown + size > room:  # a histogram without some of its buckets would be wrong
            dropped += size
            continue
        buckets = zip(bounds, map(float, accumulate(histogram.counts)), strict=True)
        family.add_metric(list(labels), list(buckets), histogram.total)
        shown += size
    return family, shown, dropped
