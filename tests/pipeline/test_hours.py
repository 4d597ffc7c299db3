"""A large day that grows keeps the files of its earlier hours, whatever arrives, and when."""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path
from random import Random

import pytest

from groupkeeper.coordinator.core import events as core
from groupkeeper.pipeline.tables import compute, small
from groupkeeper.pipeline.tables.hours import (
    BY_HOUR,
    HOURS_TABLE,
    PEAKS_TABLE,
    SAMPLES_HOURS_TABLE,
    SAMPLES_TABLE,
    file_hour,
)
from groupkeeper.pipeline.tables.small import MAX_HELD_ROWS
from groupkeeper.pipeline.tables.verify import verify
from groupkeeper.pipeline.tables.versions import read_pointer
from groupkeeper.storage.event_log.event_kinds import DATA_LOG_PREFIX
from tests.pipeline.conftest import Site, a_site, as_for_large_data
from tests.pipeline.events import DAY_MS, at, commit, joined
from tests.pipeline.test_growth import differences
from tests.pipeline.test_hard_days import assigned, ended
from tests.pipeline.test_silver_gold import end_of

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
OF_COMMITS = sorted({*BY_HOUR} - {SAMPLES_TABLE, SAMPLES_HOURS_TABLE})
FIRST = date(1970, 1, 1)


@pytest.fixture(autouse=True)
def _every_day_is_large(monkeypatch) -> None:
    monkeypatch.setattr(compute, "LARGE_DAY_EVENTS", 1)


def hours_of(site: Site, table: str, day: date = FIRST) -> dict[int, Path]:
    """The valid files of a table, by hour."""
    folder = Path(site.lake.root, read_pointer(site.spark, site.lake).folders(table)[day])
    found = {file_hour(file.name): file for file in folder.glob("*.parquet")}
    assert None not in found
    return found


def a_life(random: Random, events: int) -> list[dict]:
    """Two days of commits, removals, samples of ends, members and rebalances. Members leave hours
    after they joined. The clock is set back now and then, over hours and over midnight."""
    life, now_ms = [], 0
    members: dict[str, list[str]] = {"g": [], "h": []}
    for seq in range(1, events + 1):
        now_ms += random.randrange(2 * DAY_MS // events)
        if random.random() < 0.15:
            now_ms = max(0, now_ms - random.randrange(5 * HOUR_MS))
        group, partition = random.choice("gh"), random.randrange(2)
        offset = random.randrange(500)
        match random.randrange(12):
            case 0:
                parts = [core.LostPartition(partition, offset, -1, "", 1)]
                gone = core.OffsetDeleted(
                    group_id=group, reason="deleted", topics=[core.LostTopic("orders", "", parts)]
                )
                life.append(at(seq, gone, now_ms))
            case 1 | 2:
                life.append(at(seq, end_of((partition, offset)), now_ms))
            case 3:
                members[group].append(f"m{seq}")
                life.append(joined(seq, group, f"m{seq}", ts_ms=now_ms))
            case 4 if members[group]:
                member = members[group].pop(random.randrange(len(members[group])))
                left = core.MemberLeave(group_id=group, member_id=member)
                life.append(at(seq, left, now_ms))
            case 5:
                start = core.RebalanceStart(group_id=group, reason="member_join", member_id="m")
                life.append(at(seq, start, now_ms))
            case 6:
                life.append(ended(seq, group, len(members[group]), 5, ts_ms=now_ms))
            case 7:
                life.append(assigned(seq, group, *members[group], ts_ms=now_ms))
            case _:
                parts = [("orders", partition, offset, offset - 7)]
                life.append(commit(seq, parts, group=group, ts_ms=now_ms))
    return life


def true_ends(random: Random, samples: int) -> list[dict]:
    """Ends that the brokers told, in a log of its own."""
    log_id = f"{DATA_LOG_PREFIX}ends"
    times = sorted(random.randrange(2 * DAY_MS) for _ in range(samples))
    return [
        at(seq, end_of((seq % 2, random.randrange(900))), ts_ms, log_id=log_id)
        for seq, ts_ms in enumerate(times, 1)
    ]


@pytest.mark.parametrize(
    ("seed", "is_in_order", "large_batch", "most_held"),
    [(13, True, 1, MAX_HELD_ROWS), (19, False, 2, 0)],
)
def test_a_day_that_grows_is_the_day_that_is_made_at_once(
    spark, tmp_path, monkeypatch, seed, is_in_order, large_batch, most_held
):
    """The files arrive in order or not, and one batch is computed as large data are. Written rows
    are kept in memory, or read again by Spark."""
    monkeypatch.setattr(compute, "MAX_HELD_ROWS", most_held)
    monkeypatch.setattr(small, "MAX_HELD_BYTES", 100 * most_held)
    random = Random(seed)
    at_once, growing = a_site(spark, tmp_path / "at-once"), a_site(spark, tmp_path / "growing")
    at_once.seal(a_life(random, 60), segment_events=4)
    at_once.seal(true_ends(random, 12), segment_events=3)
    files = sorted(file.relative_to(at_once.log_dir) for file in at_once.log_dir.glob("dt=*/*.gz"))
    if not is_in_order:
        random.shuffle(files)
    days = [FIRST, date(1970, 1, 2), date(1970, 1, 3)]
    kept = 0
    batches = 4
    size = -(-len(files) // batches)
    for number in range(batches):
        before = set(growing.log_dir.parent.glob("lake/gold/lag_1m/*/*/hour-*"))
        inodes = {file.stat().st_ino for file in before}
        for file in files[number * size : (number + 1) * size]:
            (growing.log_dir / file).parent.mkdir(exist_ok=True)
            shutil.copy(at_once.log_dir / file, growing.log_dir / file)
        if number == large_batch:
            with as_for_large_data(spark):
                growing.run(accept_gaps=days)
        else:
            growing.run(accept_gaps=days)
        after = set(growing.log_dir.parent.glob("lake/gold/lag_1m/*/*/hour-*")) - before
        kept += sum(file.stat().st_ino in inodes for file in after)
    at_once.run(accept_gaps=days)
    assert differences(growing, at_once) == []
    assert kept, "no file of an earlier hour was kept"


def commits_of_hours(hours: dict[int, float]) -> list[dict]:
    """One for each seq, which is its offset too."""
    return [
        commit(seq, [("orders", 0, seq, seq - 1)], ts_ms=int(hour * HOUR_MS))
        for seq, hour in hours.items()
    ]


@pytest.mark.parametrize("is_large", [False, True])
def test_new_events_leave_the_files_of_earlier_hours(site, is_large):
    """A late event is in hour 5, between known ones. Its own hour and all later ones are new."""
    for hours in ({1: 0.5, 2: 3.1, 3: 5.1}, {5: 5.9, 6: 9}):
        site.seal(commits_of_hours(hours))
    site.run(accept_gaps=[FIRST])
    before = {table: hours_of(site, table) for table in OF_COMMITS}
    assert before["gold/lag_1m"].keys() == {0, 3, 5, 9}
    for hours in ({4: 5.5}, {7: 23.99}):
        site.seal(commits_of_hours(hours))
    if is_large:
        with as_for_large_data(site.spark):
            site.run()
    else:
        site.run()
    for table in OF_COMMITS:
        after = hours_of(site, table)
        assert after.keys() == {0, 3, 5, 9, 23}, table
        kept = {hour for hour in before[table] if after[hour].samefile(before[table][hour])}
        assert kept == {0, 3}, table
    lag = {row["minute_ms"] // MINUTE_MS: row["offset"] for row in site.gold("lag_1m")}
    assert [lag[minute] for minute in (30, 186, 306, 330, 354, 540, 1439)] == [1, 2, 3, 4, 5, 6, 7]


def test_the_hour_in_a_files_name_is_that_of_its_rows(site):
    """Spark puts the rows of each hour into the partition of this number."""
    import pyarrow.parquet as pq

    site.seal(commits_of_hours({hour + 1: hour + 0.5 for hour in range(24)}))
    with as_for_large_data(site.spark):
        site.run()
    for table in OF_COMMITS:
        for hour, file in hours_of(site, table).items():
            (minutes,) = {ms // HOUR_MS for ms in pq.read_table(file)["minute_ms"].to_pylist()}
            assert minutes == hour
        assert len(hours_of(site, table)) == 24


def test_events_without_offsets_leave_all_earlier_files(site):
    site.seal(commits_of_hours({1: 1, 2: 2}))
    site.run()
    before = hours_of(site, "gold/lag_1m")
    site.seal([joined(3, "g", "m", ts_ms=HOUR_MS)])
    site.run()
    after = hours_of(site, "gold/lag_1m")
    assert after.keys() == before.keys() == {1, 2}
    assert after[1].samefile(before[1])
    assert {row["joined"] for row in site.gold("group_daily")} == {1}


def test_a_day_that_becomes_large_gets_files_of_hours(site, monkeypatch):
    monkeypatch.setattr(compute, "LARGE_DAY_EVENTS", 4)
    site.seal(commits_of_hours({1: 1, 2: 2}))
    site.run()
    assert hours_of(site, "gold/lag_1m").keys() == {0}
    folders = read_pointer(site.spark, site.lake).days[FIRST].tables
    assert not {HOURS_TABLE, PEAKS_TABLE} & folders.keys()
    site.seal(commits_of_hours({3: 3, 4: 4}))
    site.run()
    assert (
        hours_of(site, "gold/lag_1m").keys() == hours_of(site, HOURS_TABLE).keys() == {1, 2, 3, 4}
    )
    site.seal(commits_of_hours({5: 4.5}))
    before = hours_of(site, "gold/lag_1m")
    site.run()
    assert hours_of(site, "gold/lag_1m")[3].samefile(before[3])
    assert [check for check in verify(site.spark, site.lake) if check.problem] == []


def test_a_day_whose_files_have_no_hours_is_made_anew(site):
    """As 0.2.0.dev11 and earlier versions wrote them."""
    site.seal(commits_of_hours({1: 1, 2: 2}))
    site.run()
    for table in ("_carried/minutes", "gold/lag_1m"):
        for hour, file in hours_of(site, table).items():
            file.rename(file.with_name(f"part-{hour}.parquet"))
    site.seal(commits_of_hours({3: 3}))
    site.run()
    assert hours_of(site, "gold/lag_1m").keys() == {1, 2, 3}
    assert sorted(row["offset"] for row in site.gold("lag_1m")) == [1, 2, 3]


def test_a_day_that_is_made_anew_forgets_its_minutes_while_the_next_day_grows(site):
    """A file of the first day is replaced. Of the second day, the known minutes are kept."""
    day = commits_of_hours({1: 1, 2: 2}), commits_of_hours({3: 25})
    for events in day:
        site.seal(events)
    (site.log_dir / "_manifest.jsonl").unlink()
    site.run()
    site.seal([each | {"client_id": "other"} for each in day[0]])
    site.run()
    rate = [(row["dt"].day, row["commits"]) for row in site.gold("commit_rate_1m")]
    assert sorted(rate) == [(1, 1), (1, 1), (2, 1)]
