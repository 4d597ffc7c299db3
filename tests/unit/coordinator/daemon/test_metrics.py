"""The exposition: what a scrape shows, and what it leaves out."""

from __future__ import annotations

import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from groupkeeper.coordinator.daemon.exposition import RESERVED_SERIES, Exposition
from groupkeeper.coordinator.daemon.metrics import DEFINITIONS, Source
from groupkeeper.coordinator.runtime.stats import Histogram


def scrape(sources: dict[str, Source], max_series: int = 1000) -> dict[str, float]:
    return samples(Exposition(sources, max_series))


def samples(exposition: Exposition) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(exposition.render(exposition.read()).decode()):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
    return found


def test_a_number_is_shown_under_its_full_name():
    shown = scrape({"connections": lambda: 3, "connections_accepted": lambda: 7})
    assert shown["groupkeeper_connections"] == 3
    assert shown["groupkeeper_connections_accepted_total"] == 7


def test_series_get_the_labels_of_their_definition():
    shown = scrape({"groups": lambda: {("classic", "Stable"): 2}})
    assert shown["groupkeeper_groups{state=Stable,type=classic}"] == 2


def test_each_scrape_asks_the_sources_anew():
    counts = {("idle",): 1}
    exposition = Exposition({"connections_closed": lambda: counts}, 1000)
    name = "groupkeeper_connections_closed_total{reason=idle}"
    assert samples(exposition)[name] == 1
    counts["idle",] += 4
    assert samples(exposition)[name] == 5


def test_a_metric_without_a_source_is_not_shown():
    assert not any(
        name.startswith("groupkeeper_log") for name in scrape({"connections": lambda: 1})
    )


def test_histograms_are_cumulative_and_count_what_is_beyond_the_last_bound():
    histogram = Histogram((1.0, 5.0))
    for value in (0.5, 1.0, 3.0, 99.0):
        histogram.observe(value)
    shown = scrape({"storage_flush_batch_size": lambda: histogram})
    name = "groupkeeper_storage_flush_batch_size"
    assert shown[f"{name}_bucket{{le=1.0}}"] == 2
    assert shown[f"{name}_bucket{{le=5.0}}"] == 3
    assert shown[f"{name}_bucket{{le=+Inf}}"] == 4
    assert shown[f"{name}_count"] == 4
    assert shown[f"{name}_sum"] == 103.5


def test_series_beyond_the_cap_are_left_out_and_counted():
    many = {("api", str(version)): 1.0 for version in range(12)}
    exposition = Exposition({"requests": lambda: many}, 10 + RESERVED_SERIES)
    shown = samples(exposition)
    assert sum(name.startswith("groupkeeper_requests") for name in shown) == 10
    assert shown["groupkeeper_metrics_dropped_series_total"] == 2
    assert samples(exposition)["groupkeeper_metrics_dropped_series_total"] == 4


def test_a_page_has_no_more_series_than_its_bound_those_of_the_process_included():
    many = {("api", str(version)): 1.0 for version in range(200)}
    shown = scrape({"requests": lambda: many}, 100)
    assert len(shown) == 100
    assert shown["groupkeeper_metrics_dropped_series_total"] == 200 - (100 - RESERVED_SERIES)


def test_a_histogram_is_shown_whole_or_not_at_all():
    shown = scrape(
        {"storage_flush_batch_size": lambda: Histogram((1.0, 2.0, 3.0))}, 5 + RESERVED_SERIES
    )
    assert not any("storage_flush_batch_size" in name for name in shown)
    assert shown["groupkeeper_metrics_dropped_series_total"] == 6


def test_a_source_without_a_definition_is_refused():
    with pytest.raises(AssertionError, match="not defined"):
        Exposition({"surprise": lambda: 1}, 10)


def test_label_values_are_escaped():
    shown = scrape({"connections_closed": lambda: {('a"b\\c\n',): 1}})
    assert shown['groupkeeper_connections_closed_total{reason=a"b\\c\n}'] == 1


def test_names_are_unique_and_carry_their_unit():
    names = [definition.name for definition in DEFINITIONS]
    assert len(set(names)) == len(names)
    for definition in DEFINITIONS:
        assert not definition.name.endswith(("_total", "_ms")), "seconds, and the suffix is added"
        assert definition.help.endswith(".")
        assert definition.advice.endswith(".")


def test_two_scrapers_see_the_same():
    """No number begins anew because somebody looked at it."""
    lag = Histogram((0.1, 1.0))
    lag.observe(0.5)
    exposition = Exposition({"event_loop_lag_seconds": lambda: lag}, 1000)
    first, second = samples(exposition), samples(exposition)
    name = "groupkeeper_event_loop_lag_seconds_bucket{le=1.0}"
    assert first[name] == second[name] == 1
    peaks = [d.name for d in DEFINITIONS if "since the last scrape" in d.help]
    assert peaks == []


def test_what_the_loop_does_after_the_reading_is_not_in_it():
    """It is rendered in another thread, while the loop goes on counting."""
    sizes, counts = Histogram((1.0,)), {("idle",): 1}
    exposition = Exposition(
        {"storage_flush_batch_size": lambda: sizes, "connections_closed": lambda: counts}, 1000
    )
    reading = exposition.read()
    sizes.observe(1.0)
    counts["idle",] = 9
    page = exposition.render(reading).decode()
    assert "groupkeeper_storage_flush_batch_size_count 0.0" in page
    assert 'groupkeeper_connections_closed_total{reason="idle"} 1.0' in page


def test_the_process_is_shown_under_the_usual_names():
    shown = scrape({})
    assert shown["process_resident_memory_bytes"] > 1_000_000
    assert shown["process_cpu_seconds_total"] > 0
    assert shown["process_open_fds"] > 0
    assert shown["process_start_time_seconds"] > 0


async def test_the_page_is_rendered_off_the_loop():
    threads = []

    class Spying(Exposition):
        def render(self, reading):
            threads.append(threading.get_ident())
            return super().render(reading)

    assert b"groupkeeper_connections 3.0" in await Spying({"connections": lambda: 3}, 1000).page()
    assert len(threads) == 1
    assert threads != [threading.get_ident()]
