"""``pipeline run --store``: tables from the events of a store that seals none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from groupkeeper.coordinator.cli.pipeline import tables as cli
from groupkeeper.pipeline.tables.bronze import read_events
from groupkeeper.storage.tools.by_url import land_events_of
from tests.helpers.storage.sites import FakeSite
from tests.pipeline.conftest import Site
from tests.pipeline.restore.conftest import command
from tests.storage.test_nodes_in_turn import Turns, on_fake

URL = "postgresql://me:geheim@h/db"


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    return on_fake(FakeSite(), monkeypatch)


def events_of(site: Site) -> list[tuple[str, int]]:
    rows = read_events(site.spark, site.lake).select("log_id", "seq").collect()
    return sorted((row["log_id"], row["seq"]) for row in rows)


def stored(turns: Turns) -> list[tuple[str, int]]:
    return sorted((each["log_id"], each["seq"]) for each in turns.events())


def started(*_: object, **__: object) -> None:
    raise AssertionError("Spark was started")


def test_runs_read_the_new_events_of_all_nodes_once(
    site: Site, turns: Turns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ["run", "--store", URL, "--out", site.lake.root, "--retention-days", "log=-1"]
    asyncio.run(turns.turn(1, ["a", "b"]))
    asyncio.run(turns.turn(2, ["a"], folds=False))
    said = command(*run).err
    assert f"wrote 6 events of postgresql://me:***@h/db into {site.lake.root}/log" in said
    assert "published 2023-11-14, from 6 events" in said
    assert "geheim" not in said
    with monkeypatch.context() as patch:
        patch.setattr(cli, "start_spark", started)
        assert command(*run).err == "  nothing has changed\n"
    asyncio.run(turns.turn(1, ["c"]))
    # other files of the same events, as a daemon that also seals would have written them
    land_events_of(URL, tmp_path / "sealed", lambda *_: None)
    for places in (["--log-dir", str(tmp_path / "sealed")], ["--store", URL]):
        days = ["--retention-days", "log=-1"] if "--store" in places else []
        command("run", *places, "--out", site.lake.root, *days)
        assert events_of(site) == stored(turns)
    assert "everything is right" in command("verify", "--tables", site.lake.root).out


def test_events_that_retention_deleted_are_a_gap(site: Site, turns: Turns) -> None:
    asyncio.run(turns.turn(1, ["a", "b"]))
    log = turns.site.server.event_log
    turns.site.server.event_log = [each for each in log if each["seq"] > 2]
    said = command("run", "--store", URL, "--out", site.lake.root, code=1).err
    log_id = turns.site.server.event_log[0]["log_id"]
    assert f"2023-11-14 is not published: events 1 to 2 of log {log_id} are missing" in said
