"""Every loss, double and change in a table is found, and named with its table and day."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from groupkeeper.pipeline.tables.verify import verify
from groupkeeper.pipeline.tables.versions import read_pointer
from tests.pipeline.conftest import Site, a_site
from tests.pipeline.restore.conftest import command
from tests.pipeline.test_growth import commits
from tests.pipeline.test_silver_gold import STORY

FIRST, SECOND = date(1970, 1, 1), date(1970, 1, 2)


@pytest.fixture(scope="module")
def right(spark, tmp_path_factory) -> Site:
    site = a_site(spark, tmp_path_factory.mktemp("right"))
    site.seal(STORY, segment_events=5)
    site.run()
    return site


def problems(site: Site) -> dict[tuple[str, date], str]:
    checks = verify(site.spark, site.lake)
    return {(each.table, each.day): each.problem for each in checks if each.problem}


def folder(site: Site, table: str, day: date) -> Path:
    return Path(site.lake.root, read_pointer(site.spark, site.lake).folders(table)[day])


def test_right_tables_have_no_problem(right):
    checks = verify(right.spark, right.lake)
    assert {check.problem for check in checks} == {""}
    assert {check.day for check in checks} == {FIRST, SECOND}
    rows = {check.table: check.rows for check in checks if check.day == FIRST}
    assert rows["bronze/events"] == 20
    assert all(rows[f"gold/{name}"] for name in ("lag_1m", "audit", "group_daily", "rebalances"))
    assert len(rows) == 14


def doubled(file: Path) -> None:
    shutil.copy(file, file.with_name(f"part-99{file.name[7:]}"))


DAMAGE: dict[str, Callable[[Path], object]] = {"has 0": Path.unlink, "more than": doubled}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("tables", [["silver/commit_deltas"], ["gold/audit", "_carried/offsets"]])
def test_rows_that_are_lost_or_doubled_are_named(right, tmp_path, tables, how):
    site = right.copied_to(tmp_path)
    for table in tables:
        for file in folder(site, table, FIRST).glob("*.parquet"):
            DAMAGE[how](file)
    found = problems(site)
    less_or_more = "less" if how == "has 0" else "more"
    for table in tables:
        assert f"rows {less_or_more} than expected" in found[table, FIRST]


def test_another_value_is_named(right, tmp_path):
    site = right.copied_to(tmp_path)
    place = folder(site, "gold/commit_rate_1m", FIRST)
    rows = site.spark.read.parquet(str(place)).collect()
    changed = [row.asDict() | {"messages": row["messages"] + 1} for row in rows]
    schema = site.spark.read.parquet(str(place)).schema
    frame = site.spark.createDataFrame(changed, schema)
    frame.coalesce(1).write.mode("overwrite").parquet(str(place))
    assert problems(site) == {("gold/commit_rate_1m", FIRST): "has other values than expected"}


def test_a_folder_of_bronze_that_is_lost_is_named(right, tmp_path):
    site = right.copied_to(tmp_path)
    shutil.rmtree(Path(site.lake.events, f"dt={FIRST}"))
    assert problems(site) == {("bronze/events", FIRST): "has 20 rows less than expected"}


def test_gaps_and_days_that_wait_are_named_and_doubles_are_counted(site):
    site.seal(commits(1, 4))
    hidden = site.seal(commits(5, 6))[0]
    site.seal(commits(7, 9))
    site.run()
    assert problems(site) == {}
    hidden.unlink()
    shutil.rmtree(site.lake.root)
    copy = site.log_dir / "copy" / "events-log-3-4.jsonl.gz"
    site.seal(commits(3, 4))
    copy.parent.mkdir()
    (site.log_dir / f"dt={FIRST}" / copy.name).rename(copy)
    site.run()
    found = problems(site)
    assert found["gap", FIRST].startswith("events 5 to 6 of log log are missing")
    assert found["published.json", FIRST].startswith("is held back")
    site.run(accept_gaps=[FIRST])
    assert problems(site) == {}
    doubles = {check.table: check.doubles for check in verify(site.spark, site.lake)}
    assert doubles["bronze/events"] == 2


def test_the_command_prints_a_table_and_exits_1(right, tmp_path):
    site = right.copied_to(tmp_path)
    said = command("verify", "--tables", site.lake.root)
    assert "everything is right" in said.out
    folder(site, "gold/audit", FIRST).rename(tmp_path / "elsewhere")
    said = command("verify", "--tables", site.lake.root, "-o", "json", code=1)
    (wrong,) = [each for each in json.loads(said.out)["checks"] if each["problem"]]
    assert (wrong["table"], wrong["day"]) == ("published.json", "1970-01-01")
    assert "gold/audit/dt=1970-01-01" in wrong["problem"]
    command("verify", "--tables", site.lake.root, "--since", "1970-01-02")
    command("verify", "--tables", site.lake.root, "--since", "1971-01-01", code=4)
