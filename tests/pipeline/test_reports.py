"""Reports: a page that needs nothing else, and the same rows for programs."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from datetime import date
from html.parser import HTMLParser

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.cli.pipeline.tables import ReportName
from groupkeeper.coordinator.core import events as core
from groupkeeper.pipeline.log.columns import PUBLICATION_SCHEMA
from groupkeeper.pipeline.reports import charts
from groupkeeper.pipeline.reports import groups as report_groups
from groupkeeper.pipeline.reports.jobs import REPORTS, write_reports
from groupkeeper.pipeline.reports.report import UNDER_WAY, NoTables, Scope
from groupkeeper.pipeline.run import summary
from groupkeeper.pipeline.tables.columns import VIEWS
from groupkeeper.pipeline.tables.lake import Lake
from groupkeeper.pipeline.tables.pointer import HELD_BACK
from groupkeeper.pipeline.tables.versions import read_pointer
from groupkeeper.pipeline.tables.views import write_view_files
from tests.helpers.printed.printed_docs import ROOT
from tests.pipeline.conftest import a_site
from tests.pipeline.events import DAY_MS, at, commit
from tests.pipeline.test_silver_gold import STORY, by, end_of

SPAN = charts.Span(0, 3_600_000)
EVIL = '<script>alert("&")</script>'


@pytest.fixture(scope="module")
def story(spark, tmp_path_factory):
    site = a_site(spark, tmp_path_factory.mktemp("reports"))
    site.seal(STORY[:4])
    site.seal(STORY[4:])
    site.run()
    return site


@pytest.fixture(scope="module")
def written(story, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    said: list[str] = []
    pages = write_reports(Scope(story.spark, story.lake), REPORTS, folder, said.append)
    assert [page.stem for page in pages] == [name for name in REPORTS if name != "incidents"]
    assert len(said) == len(REPORTS)
    return folder


def test_the_command_line_names_the_reports_that_there_are():
    assert [name.value for name in ReportName] == list(REPORTS)


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_a_page_and_the_same_rows_for_programs(written, name):
    rows = json.loads((written / f"{name}.json").read_text())
    assert bool(rows) == (name != "incidents")
    assert pq.read_table(written / f"{name}.parquet").num_rows == len(rows)
    with (written / f"{name}.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    text = (written / f"{name}.html").read_text()
    assert text.count("<svg") >= (2 if name in ("lag", "rebalances", "audit") else 0)
    assert "src=" not in text
    assert "http" not in text.replace("http-equiv", "")


class _Balanced(HTMLParser):
    """Fails on a tag that is not closed by its own."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", REPORTS)
def test_every_tag_of_a_page_is_closed(written, name):
    reader = _Balanced()
    reader.feed((written / f"{name}.html").read_text().removeprefix("<!DOCTYPE html>\n"))
    assert reader.open == []


def test_the_audit_names_who_did_what(written):
    text = (written / "audit.html").read_text()
    for word in ("rewind", "orders-0: 60 to 30", "orders-1: 50 to none", "ILLEGAL_GENERATION"):
        assert word in text, word


def tiles(written, name):
    """The large numbers of a page, by what they count."""
    pattern = r'<div class="tile"><b>([^<]*)</b><span>([^<]*)</span>'
    return {
        says: number for number, says in re.findall(pattern, (written / f"{name}.html").read_text())
    }


def test_a_refused_commit_counts_as_often_as_it_was_refused(written):
    assert tiles(written, "audit")["commits refused"] == "3"
    assert cells(written, "lag")[-1]["commits refused"] == "3"


def cells(written, name, which=-1):
    """The rows of a page's last table, or of another, by their headings."""
    body = (written / f"{name}.html").read_text().split("<tbody>")[which].partition("</tbody>")[0]
    body = re.sub("</?a[^>]*>", "", body)
    return [
        dict(re.findall(r'data-name="([^"]*)">([^<]*)<', row)) for row in body.split("</tr>")[:-1]
    ]


def test_a_tenant_pays_for_its_commits_its_refusals_and_the_rebalances_that_it_caused(written):
    rows = {
        (row["dt"], row["client_id"]): row
        for row in json.loads((written / "tenants.json").read_text())
    }
    first = "1970-01-01"
    assert rows[first, "app"]["commits"] == 5
    assert rows[first, "app"]["bytes"] == 6 * (len("orders") + len("note") + len("g") + 32)
    assert rows[first, "old"]["refused"] == 3
    assert (rows[first, "bob"]["joins"], rows[first, "bob"]["rebalance_ms"]) == (1, 900)
    assert rows[first, "bob"]["principal"] == "User:ANONYMOUS"


def test_every_cell_of_the_notebook_has_an_answer(story, monkeypatch):
    monkeypatch.setenv("GROUPKEEPER_TABLES", story.lake.root)
    write_view_files(story.spark, story.lake, read_pointer(story.spark, story.lake))
    notebook = json.loads((ROOT / "examples" / "first_look.ipynb").read_text())
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    assert len(cells) == 5
    names: dict[str, object] = {}
    for cell in cells:
        setup, ask, question = cell.rpartition("\nask(")
        exec(setup, names)
        assert len(eval(f"ask({question}" if ask else cell, names)), cell


def test_the_index_leads_to_every_report(written):
    text = (written / "index.html").read_text()
    for name, kind in REPORTS.items():
        assert f'<a href="{name}.html">{kind.title}</a>' in text
        assert '<a href="index.html">' in (written / f"{name}.html").read_text()


def test_the_index_shows_the_first_figures_of_every_report(written):
    text = (written / "index.html").read_text()
    for name in [name for name in REPORTS if name != "incidents"]:  # there are none
        of_report = (written / f"{name}.html").read_text()
        figures = re.findall(r'"tile"><b>(.*?)</b><span>(.*?)</span>', of_report)
        assert figures, name
        assert " · ".join(f"{what} <b>{value}</b>" for value, what in figures) in text


def test_the_figures_of_groups_count_those_that_the_page_leaves_out(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(report_groups, "MAX_GROUPS", 1)
    site = a_site(spark, tmp_path)
    ends = at(4, end_of((0, 25)), 60_000)
    commits = [commit(n, [("orders", 0, 10 * n)], group=f"g-{n}", ts_ms=n) for n in (1, 2, 3)]
    site.seal([*commits, ends])
    site.run()
    content = report_groups.build(Scope(spark, site.lake)).content
    assert content.figures == {"groups": 3, "behind": 2, "with members": 0, "commits": 3}


def test_a_group_in_a_table_leads_to_its_own_lines(written):
    assert '<a href="groups.html#g">g</a>' in (written / "lag.html").read_text()
    text = (written / "groups.html").read_text()
    details = json.loads(re.findall(r'class="details">(.*?)</script>', text)[0])
    assert details["edges"][0] == "1970-01-01 00:00"
    ((lag_most, lag, _, rate),) = details["groups"]
    assert (lag_most > 0, len(lag), len(rate)) == (True, len(rate), len(lag))
    assert set(lag) - {"."}


def test_what_a_client_repeats_is_summed_by_hour_and_the_most_severe_comes_first(spark, tmp_path):
    site = a_site(spark, tmp_path)
    refused = [
        at(n, core.CommitRejected(**by("old", "z"), error="ILLEGAL_GENERATION", count=2), n * 1000)
        for n in range(1, 200)
    ]
    rewinds = [
        commit(n, [("orders", 0, 5, 5 + n)], ts_ms=n * 1000, member="a") for n in range(200, 335)
    ]
    later = [commit(335, [("orders", 0, 5, 9)], ts_ms=2 * 3_600_000, member="a")]
    site.seal([*refused, *rewinds, *later])
    site.run()
    write_reports(Scope(spark, site.lake), ["audit"], tmp_path, lambda _: None)
    assert tiles(tmp_path, "audit") == {"rewinds": "136", "commits refused": "398"}
    assert [(row["what"], row["times"]) for row in cells(tmp_path, "audit")] == [
        ("rewind", "135"),
        ("rewind", "1"),
        ("refusal", "398"),
    ]
    assert cells(tmp_path, "audit")[0]["changed"] == "orders-0: 339 to 5"
    assert len(json.loads((tmp_path / "audit.json").read_text())) > 100


def test_a_commit_of_a_client_that_just_lost_its_session_is_a_former_members(spark, tmp_path):
    site = a_site(spark, tmp_path)
    minute = 60_000
    outside = {"member": "", "generation": -1}
    site.seal(
        [
            at(1, core.MemberJoin(**by("app", "m")), minute),
            at(2, core.MemberEvicted(**by("app", "m"), reason="session_timeout"), 2 * minute),
            commit(3, [("orders", 0, 5, 9)], ts_ms=3 * minute, **outside),
            commit(4, [("orders", 0, 9, 5)], ts_ms=4 * minute, **outside),
            commit(5, [("orders", 0, 5, 9)], ts_ms=5 * minute, client_id="ops", **outside),
            commit(6, [("orders", 0, 5, 9)], ts_ms=20 * minute, **outside),
            # many programs have the same client id by default: who leaves is no former member
            at(7, core.MemberJoin(**by("usual", "u")), 21 * minute),
            at(8, core.MemberLeave(**by("usual", "u")), 22 * minute),
            commit(9, [("orders", 0, 5, 9)], ts_ms=23 * minute, client_id="usual", **outside),
        ]
    )
    site.run()
    write_reports(Scope(spark, site.lake), ["audit"], tmp_path, lambda _: None)
    rows = json.loads((tmp_path / "audit.json").read_text())
    administrator = "administrator, or a consumer without a group"
    assert {row["seq"]: (row["action"], row["done_by"]) for row in rows} == {
        3: ("rewind", "former member"),
        4: ("reset", "former member"),
        5: ("reset", administrator),
        6: ("reset", administrator),
        9: ("reset", administrator),
    }


def test_a_day_says_what_each_of_its_numbers_counts(written):
    second, first = cells(written, "lag")
    assert (first["day"], second["day"]) == ("1970-01-01", "1970-01-02")
    assert (first["commits"], first["resets and restores"]) == ("6", "2")
    assert first["partitions taken back"] == "2"  # by a rewind, and by a reset
    assert (first["members joined"], first["members gone"]) == ("3", "1")
    assert (second["members gone"], second["members at the day&#x27;s end"]) == ("1", "1")


def test_a_request_for_two_topics_is_one_commit(spark, tmp_path):
    site = a_site(spark, tmp_path)
    site.seal([commit(1, [("a", 0, 5), ("b", 0, 5)])])
    site.run()
    write_reports(Scope(spark, site.lake), ["lag"], tmp_path, lambda _: None)
    assert tiles(tmp_path, "lag")["commits"] == "1"


def test_an_empty_report_says_so_and_takes_the_place_of_an_older_one(story, tmp_path):
    write_reports(Scope(story.spark, story.lake), REPORTS, tmp_path, lambda _: None)
    scope = Scope(story.spark, story.lake, group="nobody")
    said: list[str] = []
    assert write_reports(scope, REPORTS, tmp_path, said.append) == []
    why = "There is no group nobody on these days"
    assert [line.partition(". ")[0] for line in said] == [
        f"{n}: nothing to report" for n in REPORTS
    ]
    for name in REPORTS:
        text = (tmp_path / f"{name}.html").read_text()
        assert "group nobody, 1970-01-01 to 1970-01-02" in text
        assert why in text
        assert "ann" not in text.partition("</style>")[2]
        assert json.loads((tmp_path / f"{name}.json").read_text()) == []
        table = pq.read_table(tmp_path / f"{name}.parquet")
        assert (table.num_rows, "name" in table.column_names) == (0, name != "tenants")
        assert (tmp_path / f"{name}.csv").read_text().strip() == ",".join(table.column_names)


def test_a_report_of_days_that_are_not_published_says_which_are(story, tmp_path):
    scope = Scope(story.spark, story.lake, since=date(1970, 1, 3))
    assert write_reports(scope, REPORTS, tmp_path, lambda _: None) == []
    for name in REPORTS:
        text = (tmp_path / f"{name}.html").read_text()
        assert "is published; the published days are 1970-01-01 to 1970-01-02. Days" in text


def test_a_report_without_tables_says_what_to_do_and_leaves_the_pages_that_are_there(
    spark, tmp_path
):
    (tmp_path / "lag.html").write_text("of another place")
    scope = Scope(spark, Lake(str(tmp_path / "nothing")))
    with pytest.raises(NoTables, match=r"there are no tables in .*/nothing: is that the --out of"):
        write_reports(scope, REPORTS, tmp_path, lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == ["lag.html"]


def test_the_schemas_of_views_and_reports_are_those_of_the_tables(story):
    def names_and_types(schema):
        return sorted((field.name, field.dataType.simpleString()) for field in schema)

    assert {view: names_and_types(schema) for view, (_, schema) in VIEWS.items()} == {
        view: names_and_types(story.valid(table).schema) for view, (table, _) in VIEWS.items()
    }


def test_every_report_stands_alone(spark, tmp_path):
    """Members that came before the log began: no session; and two rebalances in one millisecond."""
    site = a_site(spark, tmp_path)
    again = core.RebalanceStart(group_id="g", member_id="m", reason="leader_rejoin", members=1)
    ends = [core.RebalanceEnd(group_id="g", generation_id=n, duration_ms=n - 4) for n in (4, 5)]
    site.seal([at(1, again, 1000), at(2, ends[0], 1000), at(3, again, 1000), at(4, ends[1], 1001)])
    site.run()
    said: list[str] = []
    written = write_reports(Scope(spark, site.lake), REPORTS, tmp_path, said.append)
    assert [path.stem for path in written] == ["groups", "rebalances", "tenants"]
    found = json.loads((tmp_path / "rebalances.json").read_text())
    assert [(row["seq"], row["generation"], row["duration_ms"]) for row in found] == [
        (3, 5, 1),
        (1, 4, 0),
    ]
    assert tiles(tmp_path, "rebalances")["rebalances"] == "2"
    assert said == [
        "incidents: nothing to report. No rule found an incident.",
        "groups: 1 row",
        "lag: nothing to report. No group had a committed offset.",
        "partitions: nothing to report. No group had a committed offset.",
        "rebalances: 2 rows",
        "audit: nothing to report. No offset was rewound, reset, restored or deleted, and no "
        "commit was refused.",
        "tenants: 1 row",
    ]


def test_where_groups_stand_has_the_idle_ones_and_none_that_was_deleted(spark, tmp_path):
    site = a_site(spark, tmp_path)
    minute = 60_000
    lost = core.LostTopic("orders", "", [core.LostPartition(1, 50, 3, "note", 5)])
    site.seal(
        [
            commit(1, [("orders", 0, 40), ("orders", 2, 1)], group="idle", ts_ms=minute),
            commit(2, [("orders", 1, 50)], group="gone", ts_ms=minute),
            at(3, end_of((0, 800), (1, 90), (2, 1)), minute),
            commit(4, [("orders", 2, 2, 1)], group="idle", ts_ms=2 * minute),
            at(5, core.OffsetDeleted(group_id="gone", reason="deleted", topics=[lost]), 3 * minute),
            commit(6, [("orders", 0, 790)], group="busy", ts_ms=DAY_MS + 5 * minute),
        ]
    )
    site.run()

    def told(**days):
        scope = Scope(spark, site.lake, **days)
        write_reports(scope, ["lag"], tmp_path, lambda _: None)
        stands = {row["group"]: row["behind"] for row in cells(tmp_path, "lag", -2)}
        rows = json.loads((tmp_path / "lag.json").read_text())
        lines: dict[str, dict[int, int]] = {}
        for row in rows:
            lines.setdefault(row["name"], {})[row["time_ms"]] = row["largest_lag"]
        return stands, lines

    stands, lines = told(since=date(1970, 1, 2))
    assert stands == {"idle": "760", "busy": "10"}
    assert set(lines["idle"].values()) == {760}
    assert "gone" not in lines
    stands, lines = told(until=date(1970, 1, 1))
    assert stands == {"idle": "760"}
    # the one that moves does not hide the one that stands still, and what went has no lag
    assert lines == {
        "idle": {minute: 760, 2 * minute: 760, 3 * minute: 760},
        "gone": {minute: 40, 2 * minute: 40},
    }


def test_a_day_that_is_missing_is_said_at_the_head_of_every_page(spark, tmp_path):
    site = a_site(spark, tmp_path)
    site.seal(STORY[:3])
    site.seal(STORY[5:])
    done = site.run()
    (line,) = [line for line in summary(done) if "is not published" in line]
    assert "events 4 to 5 of log log are missing" in line
    assert "--accept-gap 1970-01-01" in line
    scope = Scope(spark, site.lake)
    first, *_ = scope.warnings()
    assert first == "1970-01-01 is not in this report: events 4 to 5 of log log are missing."
    write_reports(scope, REPORTS, tmp_path, lambda _: None)
    for name in REPORTS:
        assert first in (tmp_path / f"{name}.html").read_text()


def test_of_many_days_with_missing_events_the_last_are_named(story, tmp_path):
    missing = "event {} of log log is missing"
    notes = [
        {"dt": date(1970, 1, day), "state": HELD_BACK, "missing": missing.format(day)}
        for day in range(1, 9)
    ]
    notes += [  # as older versions noted days that a run did not end
        {"dt": date(1970, 1, 9), "state": HELD_BACK, "missing": ""},
        {"dt": date(1970, 1, 10), "state": HELD_BACK, "missing": UNDER_WAY},
    ]
    lake = Lake(str(tmp_path))
    table = story.spark.createDataFrame(notes, PUBLICATION_SCHEMA)
    table.write.parquet(lake.publications)
    scope = Scope(story.spark, lake)
    first, *others, last = scope.warnings()
    assert last == f"1970-01-09 to 1970-01-10 are not in this report: {UNDER_WAY}."
    assert first == "Events of 3 days before these are missing too."
    assert [line[:10] for line in others] == [f"1970-01-0{day}" for day in range(4, 9)]
    assert scope.why_nothing("").startswith("No day is published yet.")


def test_the_daemon_imports_nothing_of_the_pipeline():
    ours = "groupkeeper.coordinator.daemon.app, groupkeeper.coordinator.cli.main"
    asks = f"import sys, {ours}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", asks], cwd=ROOT, capture_output=True, text=True)
    modules = set(done.stdout.split())
    assert "groupkeeper.coordinator" in modules
    assert "groupkeeper.pipeline" not in modules
    names = {name.partition(".")[0] for name in modules}
    assert not names & {"pyspark", "pandas", "pyarrow", "numpy"}


def test_the_commands_say_what_they_need_and_where_it_goes():
    done = CliRunner().invoke(app, ["pipeline", "report", "--tables", "s3a://bucket/tables"])
    assert done.exit_code == 2
    assert "--to is needed" in done.output
