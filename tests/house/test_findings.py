"""``docs/operate/findings.md``: its tests exist, its points are complete, its rows are counted."""

from __future__ import annotations

import re

from tests.helpers.printed.printed_docs import ROOT

PAGE = (ROOT / "docs" / "operate" / "findings.md").read_text()
SUMMARY = (ROOT / "docs" / "operate" / "reliability.md").read_text()
POINTS = [str(number) for number in range(1, 21)]
NEITHER = "-"
"""The cell of a finding that belongs to no point."""
SOURCES = [path for top in ("tests", "bench") for path in sorted((ROOT / top).rglob("*.py"))]


def tables() -> dict[str, list[list[str]]]:
    """The anchor of each section with findings -> the cells of its rows."""
    found = {}
    for section in PAGE.split('<a id="')[1:]:
        anchor = section.partition('"')[0]
        rows = [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", section, re.MULTILINE)]
        if rows[0] == ["point", "what", "before", "now", "test"]:
            found[anchor] = rows[2:]
    return found


ROWS = [row for rows in tables().values() for row in rows]


def test_every_row_has_five_cells_and_none_is_empty() -> None:
    assert [row for row in ROWS if len(row) != 5 or not all(map(str.strip, row))] == []


def test_every_test_that_a_row_names_exists() -> None:
    """A name is a function, a path begins below tests or bench, and a file may stand alone."""
    text = "".join(path.read_text() for path in SOURCES)
    functions = set(re.findall(r"^ *(?:async )?def (\w+)", text, re.MULTILINE))
    files = {path.name for path in SOURCES}
    lost = []
    for row in ROWS:
        named = re.findall(r"`([\w./-]+)`", row[-1])
        for each in named:
            if each.startswith("test_") and not each.endswith(".py"):
                is_there = each in functions
            elif "/" in each:
                is_there = any((ROOT / top / each).exists() for top in ("tests", "bench", ""))
            else:
                is_there = not each.endswith(".py") or each in files
            if not is_there:
                lost.append(each)
    assert lost == []


def test_every_row_names_a_test() -> None:
    said = re.compile(r"`|worlds|the same|mutants|fuzz|soak")
    assert [row[1] for row in ROWS if not said.search(row[-1])] == []


def test_each_of_the_twenty_points_has_a_finding_where_the_list_says() -> None:
    (listed,) = re.findall(r'<a id="points"></a>(.*?)<a id=', PAGE, re.DOTALL)
    places = {
        point: re.findall(r"\(#(\w+)\)", rows)
        for point, rows in re.findall(r"^\| (\d+) \| .* \| (.*) \|$", listed, re.MULTILINE)
    }
    assert list(places) == POINTS
    have = {
        anchor: {point for row in rows for point in row[0].split(", ")}
        for anchor, rows in tables().items()
    }
    wanted = {point: [a for a in have if point in have[a]] for point in POINTS}
    assert {point: sorted(anchors) for point, anchors in places.items()} == {
        point: sorted(anchors) for point, anchors in wanted.items()
    }
    assert {point for points in have.values() for point in points} <= {*POINTS, NEITHER}


def test_the_summary_counts_the_rows() -> None:
    counted = {
        anchor: int(count)
        for anchor, count in re.findall(r"findings\.md#(\w+)\) \| (\d+) \|", SUMMARY)
    }
    assert counted == {anchor: len(rows) for anchor, rows in tables().items()}
    assert f"found {len(ROWS)} problems" in SUMMARY
