"""The tables against the ledger of real consumers: what was committed, and when.

A daemon is killed while it works. Segments are late, missing, cut, flipped and doubled; two stores
are in one folder; the job is killed; and a reader of its own looks all the time. `make ledger` runs
the same for longer.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import duckdb
import pytest

from groupkeeper.pipeline.tables.lake import Lake
from groupkeeper.storage.event_log.data_ends import DataEndsLog
from groupkeeper.storage.event_log.segments import segment_names
from tests.pipeline.conftest import Site
from tests.pipeline.ledger import IDLE_GROUP, MEMBERS_GROUP, PARTITIONS, TOPIC, Key, Life, a_life
from tests.pipeline.second_reader import AlwaysLooking
from tests.pipeline.test_publish import Killed
from tests.pipeline.test_versions import dies_at

STEPS = int(os.environ.get("LEDGER_STEPS", "40"))
"""Commits of each of the four parts of the workload."""
SEED = int(os.environ.get("LEDGER_SEED", "1"))
MOMENTS = 20
END = 1_000_000
"""The end of each partition, as the brokers with the records know it."""

AS_OF = """
SELECT store, "group", partition, arg_max("offset", lease_epoch * (1::BIGINT << 40) + seq)
FROM silver_commit_deltas WHERE ts_ms <= ? GROUP BY ALL
"""


@dataclass
class Told:
    """What is left at the end: the ledger, the tables, and what their reader saw."""

    life: Life
    site: Site
    wrong: list[str]
    looks: int
    problems: list[str]
    """What a run said while segments were bad."""

    def rows(self, query: str, *values: object) -> list[tuple]:
        """Ask DuckDB, which has none of our code."""
        with duckdb.connect() as connection:
            connection.execute((Path(self.site.lake.root) / "views" / "duckdb.sql").read_text())
            return connection.execute(query, values).fetchall()

    def by_daemon(self, query: str) -> list[tuple]:
        """Return the rows of a query, its first column being a store, with the daemon instead."""
        stores = {self.life.store(number): number for number in range(2)}
        return sorted((stores[store], *rest) for store, *rest in self.rows(query))


def spoil(life: Life, since: int) -> list[tuple[Path, Path]]:
    """Damage five segments of one store; return where each was, and where its good copy is."""
    folder = life.log_of(0)
    names = [name for name in segment_names(folder) if name.first_seq > since]
    assert len(names) >= 5, "too few segments to be spoiled"
    aside = life.folder / "aside"
    aside.mkdir()
    spoiled = []
    for number, name in enumerate(life.random.sample(names, 5)):
        path, copy = folder / str(name), aside / Path(str(name)).name
        shutil.copy(path, copy)
        content = bytearray(copy.read_bytes())
        match number:
            case 0 | 1:  # missing; late
                path.unlink()
            case 2:  # cut
                path.write_bytes(content[: len(content) // 2])
            case 3:  # flipped
                content[len(content) // 2] ^= 1
                path.write_bytes(content)
            case 4:  # double
                (folder / "copies").mkdir()
                shutil.copy(path, folder / "copies" / path.name)
                continue
        spoiled.append((path, copy))
    return spoiled


@pytest.fixture(scope="module")
def told(spark, tmp_path_factory) -> Iterator[Told]:
    folder = tmp_path_factory.mktemp("ledger")
    site = Site(spark, folder / "log", Lake(str(folder / "lake")))
    with a_life(folder, SEED) as life:
        life.join(0), life.join(1)
        life.work(STEPS)
        life.sealed()
        site.run()
        early = max(name.last_seq for name in segment_names(life.log_of(0)))
        life.join(0)
        for _ in range(3):  # a segment has at most a second of events
            life.work(STEPS)
            life.kill_one_while_it_works()
            time.sleep(1)
        life.work(STEPS)
        life.sealed()
        now_ms = int(time.time() * 1000)
        ends = {(TOPIC, number): END for number in range(PARTITIONS)}
        DataEndsLog(site.log_dir / "data-ends").add(ends, now_ms)

        spoiled = spoil(life, early)
        with AlwaysLooking(folder / "lake") as reader:
            done = site.run()
            assert done.stale, "the day stays as it was"
            gaps = [gap for of_day in done.held_back.values() for gap in of_day]
            problems = [problem for gap in gaps for problem in gap.problems]
            for path, copy in spoiled:
                shutil.copy(copy, path)
            with pytest.raises(Killed):
                site.run(progress=dies_at(5))
            assert not site.run().held_back
        yield Told(life, site, reader.wrong, reader.looks, problems)


def test_offsets_at_random_moments_are_those_that_were_acknowledged(told):
    stores = {told.life.store(number): number for number in range(2)}
    moments = told.life.ledger.moments(Random(SEED), MOMENTS)
    assert len(moments) == MOMENTS
    for ts_ms in moments:
        found = {
            Key(stores[store], group, partition): offset
            for store, group, partition, offset in told.rows(AS_OF, ts_ms)
        }
        expected = told.life.ledger.offsets_at(ts_ms)
        assert {key: found.get(key) for key in expected} == expected, ts_ms


def test_lag_at_the_end_is_the_distance_to_the_true_end(told):
    query = """
    SELECT store, "group", partition, arg_max(lag, minute_ms) FROM gold_lag_1m GROUP BY ALL
    """
    found = {Key(*row[:3]): row[3] for row in told.by_daemon(query)}
    last = told.life.ledger.offsets_at(2**62)
    assert {key: found[key] for key in last} == {key: END - offset for key, offset in last.items()}


def test_rates_count_every_message_once(told):
    query = f"""
    SELECT store, sum(messages) FROM gold_commit_rate_1m
    WHERE "group" = '{MEMBERS_GROUP}' GROUP BY ALL
    """
    assert told.by_daemon(query) == [(n, told.life.ledger.messages(n)) for n in range(2)]


def test_each_join_is_a_rebalance_and_nothing_else_is(told):
    query = """
    SELECT store, count(DISTINCT seq) FROM gold_rebalances WHERE started_ms IS NOT NULL GROUP BY ALL
    """
    assert told.by_daemon(query) == sorted(told.life.ledger.joins.items())


def test_the_audit_has_every_move_back_and_every_reset(told):
    query = """
    SELECT store, action, count(*), sum(messages_back) FROM gold_audit
    WHERE action IN ('rewind', 'reset') GROUP BY ALL
    """
    found = {(daemon, action): rest for daemon, action, *rest in told.by_daemon(query)}
    ledger = told.life.ledger
    for daemon in range(2):
        back = [messages for of, messages in ledger.rewinds if of == daemon]
        assert found.get((daemon, "rewind"), [0, None]) == [len(back), sum(back) or None]
        assert found[daemon, "reset"][0] == ledger.resets[daemon]


def test_bad_segments_are_named_and_a_reader_never_saw_a_day_go_back(told):
    text = "\n".join(told.problems)
    assert "is in the manifest and not there" in text
    assert "does not have the checksum in the manifest" in text
    assert "bytes, the manifest says" in text
    assert told.wrong == []
    assert told.looks > 3


def test_the_workload_was_what_it_should_be(told):
    entries = told.life.ledger.entries
    groups = {(entry.key.daemon, entry.key.group) for entry in entries}
    assert groups == {(n, group) for n in range(2) for group in (MEMBERS_GROUP, IDLE_GROUP)}
    assert told.life.ledger.rewinds
    assert sum(entry.is_acknowledged for entry in entries) > 4 * STEPS
