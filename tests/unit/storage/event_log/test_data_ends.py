"""The log of true ends: what it writes, and what a later process makes of it."""

from __future__ import annotations

from pathlib import Path

from groupkeeper.storage.event_log.data_ends import SAMPLE_PARTITIONS, DataEndsLog
from groupkeeper.storage.event_log.event_kinds import DATA_LOG_PREFIX
from groupkeeper.storage.event_log.segments import read_segment, segment_names

DAY_MS = 24 * 60 * 60 * 1000
NOON_MS = 20_000 * DAY_MS + DAY_MS // 2
DAY = "2024-10-04"


def events(folder: Path, day: str = DAY) -> list[dict]:
    names = segment_names(folder / day)
    return [event for name in names for event in read_segment(folder / day / str(name))]


def ends(event: dict) -> dict[tuple[str, int], int]:
    return {
        (topic["topic"], row["partition"]): row["offset"]
        for topic in event["topics"]
        for row in topic["partitions"]
    }


def test_only_ends_that_changed_are_written(tmp_path):
    log = DataEndsLog(tmp_path)
    assert log.add({("a", 0): 5, ("b", 1): 7}, NOON_MS) == 2
    assert log.add({("a", 0): 5, ("b", 1): 7}, NOON_MS + 1) == 0
    assert log.add({("a", 0): 5, ("b", 1): 9}, NOON_MS + 2) == 1
    first, second = events(tmp_path)
    assert ends(first) == {("a", 0): 5, ("b", 1): 7}
    assert (ends(second), second["ts_ms"]) == ({("b", 1): 9}, NOON_MS + 2)
    assert first["log_id"].startswith(DATA_LOG_PREFIX)


def test_the_next_process_goes_on_with_the_log_of_the_day(tmp_path):
    DataEndsLog(tmp_path).add({("a", 0): 5}, NOON_MS)
    log = DataEndsLog(tmp_path)
    assert log.add({("a", 0): 5}, NOON_MS + 1) == 0
    assert log.add({("a", 0): 6}, NOON_MS + 2) == 1
    assert [(event["seq"], ends(event)) for event in events(tmp_path)] == [
        (1, {("a", 0): 5}),
        (2, {("a", 0): 6}),
    ]
    assert len({event["log_id"] for event in events(tmp_path)}) == 1


def test_each_day_begins_with_all_ends_in_a_log_of_its_own(tmp_path):
    log = DataEndsLog(tmp_path)
    log.add({("a", 0): 5}, NOON_MS)
    assert log.add({("a", 0): 5}, NOON_MS + DAY_MS) == 1
    (first,), (second,) = events(tmp_path), events(tmp_path, "2024-10-05")
    assert first["log_id"] != second["log_id"]
    assert (second["seq"], first["lease_epoch"] < second["lease_epoch"]) == (1, True)


def test_many_partitions_are_several_events_in_order(tmp_path):
    log = DataEndsLog(tmp_path)
    found = {("a", number): number for number in range(2 * SAMPLE_PARTITIONS + 1)}
    log.add(found, NOON_MS)
    log.add({("a", 0): 1}, NOON_MS + 1)
    written = events(tmp_path)
    assert [event["seq"] for event in written] == [1, 2, 3, 4]
    assert {key: end for event in written[:3] for key, end in ends(event).items()} == found


def test_a_day_with_a_damaged_segment_goes_on_in_another_log_that_is_later(tmp_path):
    DataEndsLog(tmp_path).add({("a", 0): 5}, NOON_MS)
    (name,) = segment_names(tmp_path / DAY)
    (tmp_path / DAY / str(name)).write_bytes(b"no segment")
    DataEndsLog(tmp_path).add({("a", 0): 6}, NOON_MS + 2 * 3_600_000)
    (other,) = [each for each in segment_names(tmp_path / DAY) if each.log_id != name.log_id]
    (event,) = read_segment(tmp_path / DAY / str(other))
    assert (event["seq"], ends(event)) == (1, {("a", 0): 6})


def test_old_days_are_removed_and_nothing_else(tmp_path):
    log = DataEndsLog(tmp_path, keep_days=2)
    (tmp_path / "notes").mkdir()
    for day in range(3):
        log.add({("a", 0): day}, NOON_MS + day * DAY_MS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2024-10-05", "2024-10-06", "notes"]
