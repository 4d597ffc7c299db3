"""Pages and charts: round numbers, no overlap, and nothing that a name can break."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from groupkeeper.pipeline.reports import charts, page
from groupkeeper.pipeline.reports import groups as report_groups
from groupkeeper.pipeline.reports import rebalances as report_rebalances
from groupkeeper.pipeline.reports.report import buckets

SPAN = charts.Span(0, 3_600_000)
EVIL = '<script>alert("&")</script>'


def test_a_page_of_ten_thousand_groups_is_small():
    line = {n * 60_000: float(n) for n in range(report_groups.POINTS)}
    drawn = report_groups.drawn(line, list(line))
    row = dict.fromkeys(("lag", "largest_lag", "commits", "messages", "rewinds"), 12_345_678)
    row |= dict.fromkeys(("resets", "rejected", "members", "rebalances", "rebalance_ms"), 1234)
    rows = [{"name": f"a-team.a-service.{n:05}", **row} for n in range(report_groups.MAX_GROUPS)]
    table = page.table([report_groups._shown(each) for each in rows], "", links={"group": ""})
    lines = page.embedded({"groups": [[*drawn, *drawn]] * len(rows)})
    assert len(page.page("Groups", "", [table, lines]).encode()) < 5_000_000
    assert table.count("<tr>") == 1 + page.SHOWN


def test_a_line_of_a_group_keeps_its_shape():
    assert report_groups.drawn({0: 0.0, 1: 35.0, 3: 70.0}, [0, 1, 2, 3]) == (70.0, "0i.z")
    assert report_groups.drawn({0: 0.0}, [0]) == (0.0, "0")


def test_the_end_of_a_chart_that_is_not_over_is_pale():
    lines = {"g": [(0, 1.0), (1_800_000, 2.0)]}
    drawn = charts.line_chart(lines, SPAN, "messages", partial_ms=600_000)
    shades = list(ET.fromstring(f"<all>{drawn}</all>").iter("rect"))
    assert [each.get("class") for each in shades] == ["shade"] * 2
    assert float(shades[0].get("x")) == pytest.approx(46 + (1180 - 46 - 12) * 50 / 60, abs=0.1)
    assert "shade" not in charts.line_chart(lines, SPAN, "messages")


def test_a_chart_names_its_unit():
    for drawn in (
        charts.line_chart({"g": [(0, 1.0)]}, SPAN, "messages behind"),
        charts.bar_chart({"g": [(0, 1.0)]}, SPAN, 60_000, "messages behind"),
    ):
        units = [e for e in ET.fromstring(f"<all>{drawn}</all>").iter("text") if e.get("class")]
        assert [each.text for each in units] == ["messages behind"] * 2


@pytest.mark.parametrize("named", ["a", "administration"])
def test_labels_of_a_narrow_chart_do_not_overlap(named):
    drawn = charts.density_chart({named: [(5, 1.0)]}, SPAN, 60_000).partition('class="narrow"')[2]
    labels = re.findall(r'<text x="([\d.]+)" y="\d+" text-anchor="middle">([^<]*)<', drawn)
    assert labels
    ends = [(float(x) - 3.5 * len(text), float(x) + 3.5 * len(text)) for x, text in labels]
    assert all(one[1] < other[0] for one, other in pairwise(ends))


@pytest.mark.parametrize(
    "drawn",
    [
        charts.line_chart({EVIL: [(0, 1.0), (60_000, 3.0)], "b": []}, SPAN, "messages"),
        charts.bar_chart({EVIL: [(0, 1.0)], "b": [(0, 2.0)]}, SPAN, 60_000, "rebalances"),
        charts.density_chart({EVIL: [(5, 2.0)]}, SPAN, 60_000),
    ],
    ids=["lines", "bars", "density"],
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


@pytest.mark.parametrize("largest", [3, 187_500, 230_000, 740_000, 2_000_001])
def test_the_numbers_of_an_axis_stand_where_they_say(largest):
    for value in charts.value_ticks(largest):
        text = charts.short_number(value)
        unit = {"k": 1e3, "M": 1e6}.get(text[-1], 1)
        assert float(text.rstrip("kM")) * unit == pytest.approx(value, rel=1e-9)


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
    parts = "".join(
        report_rebalances._parts("", ([{"group": "g", "joined": 1, **counted}], 1), ([], 0))
    )
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
