"""The check of ``test_readers_long.py``, with histories written by hand."""

from __future__ import annotations

import pytest

from tests.helpers.gateway.readers import GroupLog

ENDS = {0: 10}
FIRST = ["assigned 1", "read 2 0 0 6", "committed 3 0 6"]


@pytest.mark.parametrize(
    "second",
    [
        ["assigned 5", "read 6 0 6 10", "committed 7 0 10"],
        ["failed a reason with words", "assigned 5", "read 6 0 6 10"],
        ["assigned 2", "read 6 0 0 10"],  # it began before the first one had committed
        ["assigned 5", "read 6 0 6 8", "assigned 7", "read 8 0 8 10"],
    ],
)
def test_history_without_a_loss_has_no_problem(second: list[str]) -> None:
    log = GroupLog([FIRST, second])
    assert log.problems(ENDS) == []
    assert log.acknowledged()[0] >= 6


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (["assigned 5", "read 6 0 7 10"], "partition 0: nobody has read 6-7"),
        (["assigned 5", "read 6 0 6 9"], "partition 0: read to 9 of 10"),
        (
            ["assigned 5", "read 6 0 4 10"],
            "a lost commit of partition 0: begins at 4, committed was 6",
        ),
        (["assigned 5", "wrong 6 0 8", "read 6 0 6 10"], "wrong record: [6, 0, 8]"),
    ],
)
def test_each_loss_is_found(second: list[str], problem: str) -> None:
    assert GroupLog([FIRST, second]).problems(ENDS) == [problem]
