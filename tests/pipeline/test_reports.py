"""Reports: a page that needs nothing else, and the same rows for programs."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from datetime import date
from html.parser import HTMLParser

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.cli.pipeline.tables import ReportName
from groupkeeper.coordinator.core import events as core
from groupkeeper.pipeline.log.columns import PUBLICATION_SCHEMA
from groupkeeper.pipeline.reports import charts, page
from groupkeeper.pipeline.reports import rebalances as report_rebalances
from groupkeeper.pipeline.reports.jobs import REPORTS, write_reports
from groupkeeper.pipeline.reports.report import UNDER_WAY, NoTables, Scope, buckets
from groupkeeper.pipeline.run import summary
from groupkeeper.pipeline.tables.columns import VIEWS
from groupkeeper.pipeline.tables.lake import Lake
from groupkeeper.pipeline.tables.pointer import HELD_BACK
from tests.helpers.printed.printed_docs import ROOT
from tests.pipeline.conftest import a_site
from tests.pipeline.events import DAY_MS, at, commit
from tests.pipeline.test_silver_gold import STORY, end_of

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
    assert [page.stem for page in pages] == list(REPORTS)
    assert len(said) == len(REPORTS)
    return folder


def test_the_command_line_names_the_reports_that_there_are():
    assert [name.value for name in ReportName] == list(REPORTS)


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_a_page_and_the_same_rows_for_programs(written, name):
    rows = json.loads((written / f"{name}.json").read_text())
    assert rows
    assert pq.read_table(written / f"{name}.parquet").num_rows == len(rows)
    with (written / f"{name}.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(rows)
    text = (written / f"{name}.html").read_text()
    assert text.count("<svg") >= 2
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
    for word in ("rewind", "orders-0: 60 to 30", "orders-1: 50 to none", "ILLEGAL_GENERATION (3"):
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
    return [
        dict(re.findall(r'data-name="([^"]*)">([^<]*)<', row)) for row in body.split("</tr>")[:-1]
    ]


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
        assert (table.num_rows, "name" in table.column_names) == (0, True)
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
    (only,) = write_reports(Scope(spark, site.lake), REPORTS, tmp_path, said.append)
    assert only == tmp_path / "rebalances.html"
    found = json.loads((tmp_path / "rebalances.json").read_text())
    assert [(row["seq"], row["generation"], row["duration_ms"]) for row in found] == [
        (3, 5, 1),
        (1, 4, 0),
    ]
    assert tiles(tmp_path, "rebalances")["rebalances"] == "2"
    assert said == [
        "lag: nothing to report. No group had a committed offset.",
        "rebalances: 2 rows",
        "audit: nothing to report. No offset was rewound, reset, restored or deleted, and no "
        "commit was refused.",
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


@pytest.mark.parametrize(
    "drawn",
    [
        charts.line_chart({EVIL: [(0, 1.0), (60_000, 3.0)], "b": []}, SPAN, "messages"),
        charts.bar_chart({EVIL: [(0, 1.0)], "b": [(0, 2.0)]}, SPAN, 60_000, "rebalances"),
        charts.dot_chart({EVIL: [(5, EVIL)]}, SPAN),
    ],
    ids=["lines", "bars", "dots"],
)
def test_a_chart_is_well_formed_whatever_a_group_is_called(drawn):
    root = ET.fromstring(f"<all>{drawn}</all>")
    assert {each.get("class") for each in root.iter("div")} == {"wide", "narrow"}
    assert not list(root.iter("script"))
    assert EVIL in "".join(root.itertext())


def test_a_table_cannot_be_broken_by_what_is_in_it():
    root = ET.fromstring(page.table([{"group": EVIL, "lag": 12345, "none": None}], "empty"))
    assert [cell.text for cell in root.iter("td")] == [EVIL, "12,345", None]
    assert "empty" in page.table([], "empty")


def test_a_table_that_is_cut_says_so():
    rows = [{"group": "a"}, {"group": "b"}]
    assert "2 of 1,000 rows; audit.csv has all." in page.table(
        rows, "", total=1000, whole="audit.csv"
    )
    assert "rows;" not in page.table(rows, "", total=2, whole="audit.csv")


def test_a_name_too_long_for_a_line_is_cut_in_the_legend_and_broken_in_a_table():
    name = "x" * 240
    (key,) = ET.fromstring(charts.legend({"not drawn": [], name: [1]})).iter("span")
    assert key.get("title") == name
    rule = re.search(r"\.key {([^}]*)}", page.page("", "", []))
    assert rule is not None
    assert "text-overflow: ellipsis" in rule[1]
    assert "max-width" in rule[1]
    rows = [{"group": name, "topic": "orders", "lag": 1}, {"group": "g", "topic": "", "lag": 1}]
    kinds = [each.get("class") for each in ET.fromstring(page.table(rows, "")).iter("td")]
    assert kinds == ["long", "", "n"] * 2


def test_an_empty_cell_of_a_card_leaves_no_line_whatever_stands_before_it():
    """A rule for empty cells has to outrank each one that gives cells a line."""
    rules = re.findall(r"([^{}]+){([^}]*)}", page.page("", "", []).partition("@media (max")[2])
    shown = {each.strip() for names, says in rules if "flex;" in says for each in names.split(",")}
    hidden = {each.strip() for names, says in rules if "none;" in says for each in names.split(",")}
    assert {each for each in shown if "+" in each} == {".n + td:not(.n)"}
    assert {"td:empty", ".n + td:not(.n):empty"} <= hidden


def test_the_numbers_of_an_axis_stand_where_they_say():
    ceilings = [charts.nice_ceiling(each) for each in (3, 187_500, 230_000, 740_000, 2_000_001)]
    for ceiling in ceilings:
        for quarter in range(5):
            value = ceiling * quarter / 4
            text = charts.short_number(value)
            unit = {"k": 1e3, "M": 1e6}.get(text[-1], 1)
            assert float(text.rstrip("kM")) * unit == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(
    ("value", "ceiling"), [(0, 1), (1, 1), (1.2, 2), (2.4, 2.5), (7, 10), (730, 1000)]
)
def test_an_axis_ends_at_a_round_number(value, ceiling):
    assert charts.nice_ceiling(value) == ceiling


@pytest.mark.parametrize(
    ("value", "ceiling"), [(0, 4), (4, 4), (5, 8), (9, 20), (21, 40), (41, 80), (81, 200)]
)
def test_an_axis_of_counts_has_whole_numbers(value, ceiling):
    assert charts.count_ceiling(value) == ceiling


@pytest.mark.parametrize("last", [61_000, 3_600_000, 10 * 86_400_000])
def test_nothing_lies_outside_of_its_chart(last):
    span, bucket_ms = buckets([59_999, last])
    assert span.since_ms <= 59_999 - 59_999 % bucket_ms
    assert span.until_ms >= last - last % bucket_ms + bucket_ms
    assert bucket_ms % 60_000 == 0
    assert (span.until_ms - span.since_ms) / bucket_ms <= 242


def test_a_line_that_lies_upon_others_lets_them_show():
    flat = [(0, 1.0), (60_000, 1.0)]
    lines = {"a": flat, "above": [(0, 2.0)], "upon a": flat, "upon both": [(0, 3.0), flat[1]]}
    drawn = charts.line_chart(lines, SPAN, "messages").partition('class="narrow"')[0]
    root = ET.fromstring(drawn[drawn.index("<svg") : drawn.index("</svg>")] + "</svg>")
    dashes = [line.get("stroke-dasharray") for line in root.findall("{*}g")]
    assert dashes == [None, None, "12 6", "6 12"]


def test_what_is_to_be_typed_stands_apart():
    said = page.warning("run `log verify <dir>` first") + page.section("t", "`it`", "")
    assert "run <code>log verify &lt;dir&gt;</code> first" in said
    assert "<code>it</code>" in said
    assert "`" not in said


@pytest.mark.parametrize("counted", [{"forgotten": 1}, {}])
def test_forgotten_members_are_explained_where_there_are_any(counted):
    parts = "".join(report_rebalances._parts([], [{"group": "g", "joined": 1, **counted}]))
    assert ("Forgotten are" in parts) == bool(counted)


def test_a_line_holds_its_value_until_the_next():
    drawn = charts.line_chart({"g": [(0, 0.0), (1_800_000, 1.0)]}, SPAN, "messages")
    root = ET.fromstring(f"<all>{drawn}</all>")
    path = next(root.iter("path")).get("d")
    assert re.sub(r"[^A-Z]", "", path or "") == "MHVH"


def test_a_line_ends_where_nothing_is_known_any_more():
    drawn = charts.line_chart(
        {"g": [(0, 1.0), (60_000, 2.0), (600_000, 1.0)]}, SPAN, "messages", holds_ms=60_000
    )
    path = next(ET.fromstring(f"<all>{drawn}</all>").iter("path")).get("d") or ""
    assert re.sub(r"[^A-Z]", "", path) == "MHVHMH"


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
