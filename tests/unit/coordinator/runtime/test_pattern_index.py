"""The topics of patterns: resolved in slices, each name met once, within limits."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.consumer.pattern_work import PatternMatches, PatternWork
from groupkeeper.coordinator.core.work import WorkFailed, WorkFailure
from groupkeeper.coordinator.runtime import pattern_index as module
from groupkeeper.coordinator.runtime.pattern_index import NAMES_AT_ONCE, PatternIndex
from groupkeeper.coordinator.runtime.patterns import PatternRefusedError
from tests.helpers.runtime.virtual_loop import turns, virtual_time, virtual_timer


class Topics:
    """Topics that change."""

    def __init__(self, *names):
        self.image = TopicImage.of()
        self.become(*names)

    def become(self, *names):
        self.image = self.image.followed_by([TopicInfo(name, f"id of {name}", 1) for name in names])


@asynccontextmanager
async def an_index(topics, max_patterns=100, max_waiting=100, timer=virtual_timer):
    index = PatternIndex(lambda: topics.image, max_patterns, max_waiting, timer)
    try:
        yield index
    finally:
        ended = index.stop()
        if ended:
            await asyncio.wait(ended)


def begin(index, *patterns, group_id="g"):
    outcome = asyncio.get_running_loop().create_future()
    index.begin(PatternWork(group_id=group_id, epoch=1, patterns=patterns), outcome.set_result)
    return outcome


@pytest.fixture
def met(monkeypatch):
    """Every (pattern, name) that was matched."""
    pairs = []

    def compiled(pattern):
        matcher = real(pattern)

        class Noting:
            def fullmatch(self, name):
                pairs.append((pattern, name.decode()))
                return matcher.fullmatch(name)

        return Noting()

    real = module.compile_pattern
    monkeypatch.setattr(module, "compile_pattern", compiled)
    return pairs


@virtual_time
async def test_the_patterns_of_a_group_are_resolved_together():
    topics = Topics("orders.b", "orders.a", "payments")
    async with an_index(topics) as index:
        assert await begin(index, "orders.*", ".*s", "nothing") == PatternMatches(
            topics.image.version,
            {"orders.*": ("orders.a", "orders.b"), ".*s": ("payments",), "nothing": ()},
        )


@virtual_time
async def test_a_pattern_meets_each_name_once_whoever_asks(met):
    topics = Topics("orders.a", "payments")
    async with an_index(topics) as index:
        await begin(index, "orders.*", group_id="g")
        await begin(index, "orders.*", group_id="h")
        assert met == [("orders.*", "orders.a"), ("orders.*", "payments")]
        met.clear()
        topics.become("orders.a", "payments", "orders.c")
        found = await begin(index, "orders.*")
        assert found.topics == {"orders.*": ("orders.a", "orders.c")}
        assert met == [("orders.*", "orders.c")]


@virtual_time
async def test_a_deleted_topic_is_no_match_until_it_exists_again(met):
    topics = Topics("orders.a", "orders.b")
    async with an_index(topics) as index:
        await begin(index, "orders.*")
        met.clear()
        topics.become("orders.b")
        assert (await begin(index, "orders.*")).topics == {"orders.*": ("orders.b",)}
        topics.become("orders.b", "orders.a")
        assert (await begin(index, "orders.*")).topics == {"orders.*": ("orders.a", "orders.b")}
        assert met == []


@virtual_time
async def test_names_of_deleted_topics_do_not_gather(monkeypatch):
    monkeypatch.setattr(module, "MAX_GONE_NAMES", 10)
    topics = Topics("stays")
    async with an_index(topics) as index:
        for number in range(100):
            topics.become("stays", f"comes.{number}")
            found = await begin(index, ".*")
            assert found.topics == {".*": (f"comes.{number}", "stays")}
            assert len(index._names) <= 2 * 2 + 10 + 1


@virtual_time
async def test_other_work_of_the_loop_goes_on_between_slices(met, monkeypatch):
    """Each look at the timer takes as long as a slice."""
    topics = Topics(*[f"orders.{number}" for number in range(4 * NAMES_AT_ONCE)])
    elapsed_s = 0.0

    def timer():
        nonlocal elapsed_s
        elapsed_s += module.SLICE_S * 1.5
        return elapsed_s

    async with an_index(topics, timer=timer) as index:
        outcome = begin(index, "orders.*")
        most = 0
        while not outcome.done():
            before = len(met)
            await turns()
            most = max(most, len(met) - before)
        assert most == NAMES_AT_ONCE
        assert len((await outcome).topics["orders.*"]) == len(met) == 4 * NAMES_AT_ONCE


@virtual_time
async def test_names_are_learned_and_topics_sorted_in_slices(monkeypatch):
    """Each look at the timer takes as long as a slice."""
    monkeypatch.setattr(module, "MANY_AT_ONCE", 10)
    monkeypatch.setattr(module, "NAMES_AT_ONCE", 40)
    names = [f"orders.{number:02}" for number in range(40)]
    topics = Topics(*reversed(names))
    elapsed_s = 0.0

    def timer():
        nonlocal elapsed_s
        elapsed_s += module.SLICE_S * 1.5
        return elapsed_s

    async with an_index(topics, timer=timer) as index:
        outcome = begin(index, "orders.*")
        learned = []
        after = 0
        while not outcome.done():
            await turns()
            if len(index._names) not in learned:
                learned.append(len(index._names))
            after += len(index._names) == len(names)
        assert learned == [10, 20, 30, 40]
        assert after >= 1 + 4 + 4, "it is compared, sorted and merged"
        assert (await outcome).topics == {"orders.*": tuple(names)}


@virtual_time
async def test_topics_are_sorted_once_for_all_groups():
    topics = Topics("orders.b", "orders.a")
    async with an_index(topics) as index:
        first = await begin(index, "orders.*", group_id="g")
        second = await begin(index, "orders.*", group_id="h")
        assert second.topics["orders.*"] is first.topics["orders.*"]


@virtual_time
async def test_topics_that_appear_between_slices_are_left_for_the_next_time(met):
    topics = Topics("orders.a")
    async with an_index(topics) as index:
        outcome = begin(index, "orders.*", "o.*")
        await turns()
        version = topics.image.version
        topics.become("orders.a", "orders.b")
        assert await outcome == PatternMatches(
            version, {"orders.*": ("orders.a",), "o.*": ("orders.a",)}
        )


@virtual_time
async def test_a_wrong_pattern_has_its_reason_and_a_known_one_none():
    async with an_index(Topics()) as index:
        assert index.error("(") == "missing ): ("
        assert index.error("orders.*") is None
        assert index.patterns == 1


@virtual_time
async def test_more_patterns_than_the_limit_are_refused_until_one_was_not_used_for_long():
    async with an_index(Topics("a"), max_patterns=2) as index:
        assert [index.error(pattern) for pattern in ("a", "b")] == [None, None]
        await begin(index, "a", "b")
        refusal = "the coordinator holds 2 different patterns already"
        assert index.error("c") == refusal
        assert index.error("a") is None, "it is held"
        await asyncio.sleep(module.UNUSED_S - 1)
        assert index.error("c") == refusal
        await begin(index, "a")
        await asyncio.sleep(1)
        assert index.error("c") is None, "b was not used"
        assert index.error("b") == refusal


@virtual_time
async def test_a_pattern_that_a_group_has_used_is_kept_for_20_minutes():
    """A group asks again after ten minutes."""
    async with an_index(Topics("a"), max_patterns=1) as index:
        assert index.error("a") is None
        await begin(index, "a")
        await asyncio.sleep(20 * 60 - 1)
        assert index.error("b") is not None
        await asyncio.sleep(1)
        assert index.error("b") is None


@virtual_time
async def test_patterns_of_refused_members_soon_make_room_for_others():
    async with an_index(Topics("a"), max_patterns=3) as index:
        await begin(index, "a")
        assert [index.error(pattern) for pattern in ("b", "c")] == [None, None]
        await asyncio.sleep(module.UNRESOLVED_S - 1)
        await begin(index, "c")
        assert index.error("d") is not None
        await asyncio.sleep(1)
        assert index.error("d") is None, "no group has asked for b"
        await asyncio.sleep(module.UNRESOLVED_S)
        assert index.error("e") is None, "nor for d"
        assert index.error("f") is not None, "groups have asked for a and c"


@virtual_time
async def test_patterns_of_stored_groups_are_served_above_the_limit():
    async with an_index(Topics("a"), max_patterns=1) as index:
        found = await begin(index, "a", "a.*", "b")
        assert found.topics == {"a": ("a",), "a.*": ("a",), "b": ()}


@virtual_time
async def test_a_stored_pattern_that_cannot_be_used_here_has_no_result(monkeypatch):
    """Its group keeps the topics that it had: the extra may be missing since."""

    def refuse(pattern):
        raise PatternRefusedError("not installed")

    async with an_index(Topics("a")) as index:
        await begin(index, "a")
        monkeypatch.setattr(module, "compile_pattern", refuse)
        with capture_logs() as lines:
            assert (await begin(index, "a", "b")).topics == {"a": ("a",)}
        assert index.patterns == 1
        assert [line["event"] for line in lines] == ["pattern_not_resolved"]


@virtual_time
async def test_more_groups_than_may_wait_are_refused():
    async with an_index(Topics("a"), max_waiting=1) as index:
        first, second = begin(index, "a"), begin(index, "a")
        outcome = await second
        assert isinstance(outcome, WorkFailed)
        assert outcome.failure is WorkFailure.REFUSED
        assert (await first).topics == {"a": ("a",)}
        assert index.waiting == 0


@virtual_time
async def test_nothing_has_an_outcome_after_a_stop():
    index, outcomes = PatternIndex(Topics("a").__getattribute__, 10, 10), []
    index.begin(PatternWork(group_id="g", epoch=1, patterns=("a",)), outcomes.append)
    (task,) = index.stop()
    await asyncio.wait([task])
    index.begin(PatternWork(group_id="g", epoch=1, patterns=("a",)), outcomes.append)
    assert index.waiting == 0
    await turns()
    assert outcomes == []
