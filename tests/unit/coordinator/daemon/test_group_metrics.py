"""Members, offsets and lag of groups under the names of kafka_exporter."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.daemon import exposition
from groupkeeper.coordinator.daemon.exposition import RESERVED_SERIES, Exposition
from groupkeeper.coordinator.daemon.group_metrics import (
    FAMILIES,
    PIECE_SERIES,
    Detail,
    MetricsWalk,
    Snapshot,
)
from tests.helpers.core.shard_driver import ShardDriver, a_stable_group
from tests.helpers.runtime.virtual_loop import turns

ROOT = Path(__file__).parents[4]
ENDS = {("orders-id", 0): 10, ("orders-id", 1): 100}
ORDERS = TopicInfo("orders", "orders-id", 2)


def walk(driver: ShardDriver, detail: Detail = "partitions") -> MetricsWalk:
    return MetricsWalk(
        lambda: [driver.shard.groups],
        lambda: driver.image.by_name.values(),
        lambda topic_id, partition: ENDS.get((topic_id, partition), 0),
        detail,
    )


def a_driver() -> ShardDriver:
    driver = ShardDriver(image=TopicImage.of(ORDERS))
    driver.commit("billing", {"orders": {0: 4, 1: 100}})
    return driver


async def page(driver: ShardDriver, detail: Detail, max_series: int = 1_000) -> list[str]:
    lines = (await Exposition({}, max_series, walk(driver, detail)).page()).decode().splitlines()
    return [line for line in lines if line.startswith(("kafka_", "groupkeeper_"))]


DROPPED = "groupkeeper_metrics_dropped_series_total 0.0"
SUMMARY = [
    'kafka_topic_partitions{topic="orders"} 2.0',
    'kafka_consumergroup_members{consumergroup="billing"} 0.0',
    'kafka_consumergroup_current_offset_sum{consumergroup="billing",topic="orders"} 104.0',
    'kafka_consumergroup_lag_sum{consumergroup="billing",topic="orders"} 6.0',
]


async def test_a_summary_has_members_offsets_and_lag_by_group_and_topic() -> None:
    assert await page(a_driver(), "summary") == [DROPPED, *SUMMARY]


async def test_partitions_are_shown_on_demand() -> None:
    of = '{consumergroup="billing",partition="%d",topic="orders"}'
    assert await page(a_driver(), "partitions") == [
        DROPPED,
        *SUMMARY,
        'kafka_topic_partition_current_offset{partition="0",topic="orders"} 10.0',
        'kafka_topic_partition_current_offset{partition="1",topic="orders"} 100.0',
        'kafka_topic_partition_oldest_offset{partition="0",topic="orders"} 0.0',
        'kafka_topic_partition_oldest_offset{partition="1",topic="orders"} 0.0',
        f"kafka_consumergroup_current_offset{of % 0} 4.0",
        f"kafka_consumergroup_current_offset{of % 1} 100.0",
        f"kafka_consumergroup_lag{of % 0} 6.0",
        f"kafka_consumergroup_lag{of % 1} 0.0",
    ]


async def test_members_are_counted() -> None:
    driver = ShardDriver()
    a_stable_group(driver, members=2)
    assert 'kafka_consumergroup_members{consumergroup="g"} 2.0' in await page(driver, "summary")


async def test_a_lag_is_never_negative() -> None:
    """While a shard loads, the end of a partition may be behind an offset."""
    driver = a_driver()
    driver.commit("billing", {"orders": {1: 150}})
    shown = await page(driver, "partitions")
    assert (
        'kafka_consumergroup_lag{consumergroup="billing",partition="1",topic="orders"} 0.0' in shown
    )
    assert 'kafka_consumergroup_lag_sum{consumergroup="billing",topic="orders"} 6.0' in shown


async def test_in_front_of_a_cluster_an_end_that_is_not_known_gives_no_series() -> None:
    driver = a_driver()
    ends = {("orders-id", 0): 10}
    shown = Exposition(
        {},
        1_000,
        MetricsWalk(
            lambda: [driver.shard.groups],
            lambda: driver.image.by_name.values(),
            lambda topic_id, partition: ends.get((topic_id, partition), -1),
            "partitions",
            has_records=True,
        ),
    )
    lines = (await shown.page()).decode().splitlines()
    assert not [line for line in lines if line.startswith("kafka_topic_partition_oldest")]
    known = [line for line in lines if line.startswith(("kafka_consumergroup_lag{", "kafka_topic"))]
    assert [line for line in known if 'partition="1"' in line] == []
    assert len([line for line in known if 'partition="0"' in line]) == 2


async def test_series_beyond_the_cap_are_left_out_and_counted() -> None:
    driver = ShardDriver(image=TopicImage.of(ORDERS))
    for number in range(10):
        driver.commit(f"g-{number}", {"orders": {0: 5}})
    shown = await page(driver, "partitions", max_series=16 + RESERVED_SERIES)
    assert sum(line.startswith("kafka_") for line in shown) == 16
    all_of_them = 1 + 2 * 2 + 10 * (1 + 2 + 2)
    assert shown[0] == f"groupkeeper_metrics_dropped_series_total {all_of_them - 16:.1f}"


def test_many_partitions_leave_room_for_groups_and_many_groups_for_topics() -> None:
    wide = [TopicInfo(f"wide{n}", f"wide-{n}", 100) for n in range(20)]
    driver = ShardDriver(image=TopicImage.of(ORDERS, *wide))
    driver.commit("billing", {"orders": {0: 4, 1: 100}})
    snapshot = Snapshot(100)
    for _ in walk(driver).fill(snapshot):
        pass
    assert len(snapshot.rows["kafka_consumergroup_lag"]) == 2
    shown = sum(len(rows) for rows in snapshot.rows.values())
    assert (shown, snapshot.dropped) == (100, 21 + 2 * 2_002 + 1 + 2 + 4 - 100), "room is unused"
    for number in range(200):
        driver.commit(f"g{number}", {"orders": {0: 4}})
    snapshot = Snapshot(100)
    for _ in walk(driver).fill(snapshot):
        pass
    assert snapshot.rows["kafka_topic_partitions"]
    assert sum(len(rows) for name, rows in snapshot.rows.items() if "topic_" in name) <= 52


async def test_a_group_with_an_endless_id_is_left_out_and_counted() -> None:
    driver = ShardDriver()
    driver.commit("g" * 249, {"orders": {0: 5}})
    driver.commit("h" * 250, {"orders": {0: 5}})
    shown = await page(driver, "summary")
    ids = {line.split('"')[1] for line in shown if "consumergroup=" in line}
    assert ids == {"g" * 249}
    assert shown[0] == "groupkeeper_metrics_dropped_series_total 1.0"


def test_a_large_group_is_read_in_pieces() -> None:
    count = 10 * PIECE_SERIES
    driver = ShardDriver(image=TopicImage.of(TopicInfo("orders", "orders-id", count)))
    driver.commit("g", {"orders": dict.fromkeys(range(count), 5)})
    snapshot = Snapshot(room=100 * count)
    assert longest_piece(walk(driver).fill(snapshot), snapshot) <= 2 * PIECE_SERIES + 4
    assert snapshot.dropped == 0


def test_what_is_small_but_many_is_read_in_pieces() -> None:
    """A group of many topics with one offset each, and many topics, fit into no piece either; also
    where there is no room for them and they are only counted.
    """
    count = 10 * PIECE_SERIES
    names = [f"t-{number}" for number in range(count)]
    driver = ShardDriver(image=TopicImage.of(*(TopicInfo(name, name, 1) for name in names)))
    driver.commit("g", {name: {0: 5} for name in names})
    snapshot = Snapshot(room=100 * count)
    assert longest_piece(walk(driver, "summary").fill(snapshot), snapshot) <= PIECE_SERIES + 4
    full = Snapshot(room=0)
    assert longest_drop(walk(driver, "summary").fill(full), full) <= 2 * PIECE_SERIES
    assert full.dropped == 3 * count + 1


def test_a_slice_leaves_half_of_what_a_turn_may_take_to_its_last_piece():
    """A snapshot takes at most 2 ms of a turn, and a slice ends after the piece that exceeds it."""
    assert exposition.SLICE_MS <= 1


async def test_others_have_their_turn_between_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "SLICE_MS", 0)  # each piece takes longer than a slice
    count = 5 * PIECE_SERIES
    driver = ShardDriver(image=TopicImage.of(TopicInfo("orders", "orders-id", count)))
    driver.commit("g", {"orders": dict.fromkeys(range(count), 5)})
    turn = 0
    seen: list[int] = []

    class Watched(MetricsWalk):
        def fill(self, snapshot: Snapshot) -> Iterator[None]:
            for piece in walk(driver).fill(snapshot):
                seen.append(turn)
                yield piece

    async def others() -> None:
        nonlocal turn
        while True:
            turn += 1
            await turns()

    task = asyncio.create_task(others())
    watched = Watched(list, list, lambda *_: 0, "partitions")
    await Exposition({}, 100 * count, watched).page()
    task.cancel()
    assert len(seen) > 5
    assert seen == sorted(set(seen))


def longest_drop(pieces: Iterator[None], snapshot: Snapshot) -> int:
    """The most series that were left out between two looks at the time."""
    longest = dropped = 0
    for _ in pieces:
        longest = max(longest, snapshot.dropped - dropped)
        dropped = snapshot.dropped
    return max(longest, snapshot.dropped - dropped)


def longest_piece(pieces: Iterator[None], snapshot: Snapshot) -> int:
    """The most series that were added between two looks at the time."""
    longest, left = 0, snapshot.room
    for _ in pieces:
        longest = max(longest, left - snapshot.room)
        left = snapshot.room
    return max(longest, left - snapshot.room)


def test_a_group_that_goes_while_it_is_read_is_left_out() -> None:
    driver = a_driver()
    for number in range(100):
        driver.commit(f"g-{number}", {"orders": {0: 5}})
    snapshot = Snapshot(room=10_000)
    pieces = walk(driver).fill(snapshot)
    next(pieces)
    driver.shard.groups.clear()
    for _ in pieces:
        pass
    assert len(snapshot.rows["kafka_consumergroup_members"]) < 101


def test_the_manual_has_every_family() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    for family in FAMILIES:
        where = "`summary`, `partitions`" if family.detail == "summary" else "`partitions`"
        name = f"{family.name}{{{', '.join(family.labels)}}}"
        assert f"| `{name}` | {where} | {family.help} |" in text


def test_every_family_is_a_name_of_kafka_exporter() -> None:
    """As its README and source have them: dashboards look for these."""
    assert {(family.name, family.labels) for family in FAMILIES} == {
        ("kafka_topic_partitions", ("topic",)),
        ("kafka_topic_partition_current_offset", ("topic", "partition")),
        ("kafka_topic_partition_oldest_offset", ("topic", "partition")),
        ("kafka_consumergroup_members", ("consumergroup",)),
        ("kafka_consumergroup_current_offset", ("consumergroup", "topic", "partition")),
        ("kafka_consumergroup_current_offset_sum", ("consumergroup", "topic")),
        ("kafka_consumergroup_lag", ("consumergroup", "topic", "partition")),
        ("kafka_consumergroup_lag_sum", ("consumergroup", "topic")),
    }
