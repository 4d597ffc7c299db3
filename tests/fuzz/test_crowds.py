"""Small crowds in consumer groups: every request is answered, and no callback is slow."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from groupkeeper.coordinator.core.consumer import subscriptions
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.server.watch import SLOW_S
from tests.fuzz.crowds import (
    SMALL,
    Crowd,
    Play,
    Seen,
    join,
    joiners,
    least,
    many_topics,
    names,
    one_topic,
    patterns,
)
from tests.fuzz.prepared import ExactWatch, new_loop


@pytest.fixture
def play() -> Iterator[Callable[[Play], list[Seen]]]:
    watch = ExactWatch()
    loop = new_loop(watch)
    yield lambda each: loop.run_until_complete(least(each, SMALL, watch))
    loop.close()


def test_of_a_crowd_with_a_pattern_each_as_many_join_as_the_limits_allow(play) -> None:
    one_group, many_groups, group_each, _ = play(patterns)
    refused = ErrorCode.INVALID_REGULAR_EXPRESSION
    assert one_group.answers == {
        ErrorCode.NONE: SMALL.patterns,
        refused: SMALL.members - SMALL.patterns,
    }
    assert many_groups.answers == {ErrorCode.NONE: SMALL.members}
    assert group_each.answers[refused] > 0
    assert one_group.worst_s <= SLOW_S
    assert many_groups.worst_s <= SLOW_S
    assert group_each.worst_s <= SLOW_S


@pytest.mark.parametrize("each", [names, joiners, one_topic, many_topics])
def test_a_crowd_holds_the_loop_for_a_short_time_only(play, each: Play) -> None:
    seen = play(each)
    assert {code for one in seen for code in one.answers} == {ErrorCode.NONE}
    assert [one.line() for one in seen if one.worst_s > SLOW_S] == []


def test_a_callback_that_holds_the_loop_is_seen(play, monkeypatch: pytest.MonkeyPatch) -> None:
    hash_of = subscriptions._hash_of

    def slow(*args: Any) -> int:
        until_s = time.thread_time() + 1.1 * SLOW_S
        while time.thread_time() < until_s:
            pass
        return hash_of(*args)

    async def one_joins(crowd: Crowd) -> AsyncIterator[Seen]:
        yield await crowd.send("one joins", [join("g", "m", names=crowd.topics)])

    monkeypatch.setattr(subscriptions, "_hash_of", slow)
    (seen,) = play(one_joins)
    assert seen.worst_s > SLOW_S
    assert seen.callback == "Connection.data_received"
