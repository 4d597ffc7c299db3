"""The judge of ``make fuzz`` finds what it should, and nothing where all is well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fuzz.judge import Figures, complaints, line

GOOD = Figures(
    connections=10,
    requests=100,
    mutated=50,
    answered=90,
    closed=5,
    quiet_beats=60,
    quiet_commits=20,
    rss_before_kb=80_000,
    rss_after_kb=88_000,
)


def test_a_good_run_has_no_complaints() -> None:
    assert complaints(GOOD) == []
    assert "100 requests (50 mutated)" in line(GOOD)
    assert "(+10.0%)" in line(GOOD)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"died": "exit code -6"}, "the daemon died: exit code -6"),
        ({"bugs": 1}, "1 internal errors"),
        ({"bug_lines": ["core_failed ..."]}, "core_failed"),
        ({"stuck": ["[(12, 4)]"]}, "1 stuck connections"),
        ({"disturbed": ["quiet-raw-0: heartbeat 25"]}, "quiet-raw-0: heartbeat 25"),
        ({"rss_after_kb": 88_100}, "memory grew from 80000 to 88100 KB"),
        ({"exit_code": 1}, "the stop at the end gave 1"),
        ({"connections": 0}, "no connections: this run shows nothing"),
        ({"mutated": 0}, "no mutated"),
        ({"answered": 0}, "no answered"),
        ({"quiet_beats": 0}, "no quiet beats"),
        ({"quiet_commits": 0}, "no quiet commits"),
    ],
)
def test_each_thing_that_must_not_be_is_told(bad: dict[str, object], words: str) -> None:
    (complaint,) = complaints(replace(GOOD, **bad))
    assert words in complaint
