"""The page and the charts that `python -m bench.scale --write` prints are of one run."""

from __future__ import annotations

import re

from bench import scale
from bench.curves import draw

PAGE = scale.PAGE.read_text()
FOUND = scale.read(PAGE)


def test_the_tables_are_read_as_they_are_printed():
    run = re.search(r"^This run: (.*)\.$", PAGE, re.MULTILINE)[1]
    assert scale.written(FOUND, run) == PAGE


def test_the_charts_show_the_figures_of_the_tables():
    assert scale.SVG.read_text() == draw(scale.curves(FOUND))


def test_every_point_is_in_its_table():
    for curve, counts in scale.POINTS.items():
        assert len(FOUND[curve]) == len(counts)


def test_a_request_executes_no_more_with_many_members_or_groups():
    for curve in ("members", "groups"):
        times = scale.growth(curve, FOUND[curve])
        assert {key for key in times if key.endswith("_ops")} == {
            "heartbeat_ops",
            "commit_ops",
            "fetch_ops",
        }
        assert all(t <= scale.MAX_GROWTH for key, t in times.items() if key.endswith("_ops"))
