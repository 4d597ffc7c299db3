"""Groups whose members subscribe to many names: what is counted once is not counted again for each
member.
"""

from __future__ import annotations

from typing import Any

import pytest

from groupkeeper.coordinator.core import shard
from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.consumer import subscriptions, targets
from groupkeeper.coordinator.core.consumer.group import ConsumerGroup
from groupkeeper.coordinator.core.events import MemberEvicted
from groupkeeper.coordinator.core.groups.census import Tally
from tests.helpers.core.consumer_members import ConsumerStub, settle
from tests.helpers.core.shard_driver import ShardDriver

NAMES = 100
MEMBERS = 40
TOPICS = tuple(TopicInfo(f"topic-{n:03}", f"{n:022}", 1) for n in range(NAMES))


class HashedName(str):
    """A name that counts how often a hash of any name is asked for."""

    __slots__ = ()
    hashed = 0

    def __hash__(self) -> int:
        HashedName.hashed += 1
        return super().__hash__()


class CountedTopics(dict[str, TopicInfo]):
    """Topics that count how often one is looked up."""

    looked_up = 0

    def get(self, *args: Any) -> Any:
        self.looked_up += 1
        return super().get(*args)


def members_of(driver: ShardDriver, topics: tuple[str, ...]) -> list[ConsumerStub]:
    members = [ConsumerStub(driver, f"m-{n:02}", topics) for n in range(MEMBERS)]
    for member in members:
        member.join()
    return members


def test_a_list_that_many_members_have_is_hashed_once(make_driver):
    driver = make_driver(image=TopicImage.of(*TOPICS))
    members_of(driver, tuple(HashedName(topic.name) for topic in TOPICS))
    group = driver.shard.groups["g"]
    HashedName.hashed = 0
    computation = targets.begin(group, driver.image, "uniform")
    assert computation.spec.subscriptions == [list(range(NAMES))]
    assert computation.spec.members == [0] * MEMBERS
    record = group.to_record()
    assert [len(names) for names in record.subscriptions] == [NAMES]
    loaded = ConsumerGroup("g", Tally())
    loaded.save(record)
    assert loaded.to_record() == record
    assert HashedName.hashed < 20 * NAMES, "and not once for each of 40 members"


def test_the_tables_of_many_topics_are_made_once_for_all_computations(
    make_driver, monkeypatch: pytest.MonkeyPatch
):
    """Every interval, a member of such a group begins a computation."""
    monkeypatch.setattr(subscriptions, "KEPT_TOPICS", NAMES)
    names = [HashedName(topic.name) for topic in TOPICS]
    topics = [TopicInfo(name, f"{n:022}", 1) for n, name in enumerate(names)]
    driver = make_driver(image=TopicImage.of(*topics))
    members = members_of(driver, tuple(names))
    settle(driver, members)
    group = driver.shard.groups["g"]
    first = targets.begin(group, driver.image, "uniform")
    HashedName.hashed = 0
    again = targets.begin(group, driver.image, "uniform")
    assert again == first
    assert sum(map(len, again.spec.previous)) == NAMES
    assert HashedName.hashed == NAMES, "each name of the one list is looked up in the tables"


def test_the_tables_follow_the_topics(make_driver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subscriptions, "KEPT_TOPICS", 1)
    driver = make_driver(image=TopicImage.of(*TOPICS[:2]))
    member = ConsumerStub(driver, "a", tuple(topic.name for topic in TOPICS[:3]))
    member.join()
    for topics in (TOPICS[:3], TOPICS[1:3], (TOPICS[0], TopicInfo(*TOPICS[1][:2], partitions=4))):
        driver.change_topics(*topics)
        settle(driver, [member], rounds=3)
        group = driver.shard.groups["g"]
        numbered = group.subscriptions.numbered(driver.image)
        assert numbered.topics == [*topics]
        assert set(member.held) == {topic.topic_id for topic in topics}
        assert numbered.numbers(group.members["a"].target) == [
            *range(sum(topic.partitions for topic in topics))
        ]


def test_members_that_go_together_look_the_topics_up_once(make_driver):
    counted = CountedTopics({topic.name: topic for topic in TOPICS})
    image = TopicImage(counted, {topic.topic_id: topic for topic in TOPICS})
    driver = make_driver(image=image)
    members_of(driver, tuple(counted))
    epoch = driver.shard.groups["g"].epoch()
    counted.looked_up = 0
    driver.advance(60_000)
    group = driver.shard.groups["g"]
    assert group.is_empty()
    assert group.epoch() == epoch + MEMBERS
    assert counted.looked_up < 5 * NAMES, "and not once for each of 40 epochs"


def test_topics_that_come_and_go_are_noticed(make_driver):
    driver = make_driver(image=TopicImage.of(*TOPICS[:2]))
    member = ConsumerStub(driver, "a", tuple(topic.name for topic in TOPICS[:3]))
    member.join()
    hashes = [driver.shard.groups["g"].epochs.metadata_hash]
    for topics in (TOPICS[:3], TOPICS[1:3], TOPICS[:2]):
        driver.change_topics(*topics)
        settle(driver, [member], rounds=3)
        hashes.append(driver.shard.groups["g"].epochs.metadata_hash)
        assert set(member.held) == {topic.topic_id for topic in topics}
    assert hashes[0] == hashes[3]
    assert len({*hashes}) == 3


@pytest.mark.parametrize("is_shared", [False, True])
def test_members_with_names_of_their_own_fall_silent_in_a_step_each(
    make_driver, monkeypatch: pytest.MonkeyPatch, is_shared: bool
):
    """The topics of the group are looked up again after each of them, but once for members that
    share their list.
    """
    monkeypatch.setattr(shard, "MAX_ITEMS_PER_STEP", 250)
    driver = make_driver(image=TopicImage.of(*TOPICS))
    names = [topic.name for topic in TOPICS]
    lists = [names[:50]] * 2 if is_shared else [names[:50], names[50:]]
    for member_id, some in zip("ab", lists, strict=True):
        ConsumerStub(driver, member_id, tuple(some)).join()
    driver.advance(60_000)
    assert driver.shard.groups["g"].is_empty()
    evicted = [[type(event) for event in step.events].count(MemberEvicted) for step in driver.steps]
    assert [count for count in evicted if count] == ([2] if is_shared else [1, 1])


def test_members_with_many_partitions_fall_silent_in_a_step_each(
    make_driver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shard, "MAX_ITEMS_PER_STEP", 60)
    driver = make_driver(image=TopicImage.of(TopicInfo("orders", f"{1:022}", 100)))
    members = [ConsumerStub(driver, member_id) for member_id in "ab"]
    for member in members:
        member.join()
    settle(driver, members)
    assert [len(member.partitions()) for member in members] == [50, 50]
    driver.advance(60_000)
    assert driver.shard.groups["g"].is_empty()
    evicted = [[type(event) for event in step.events].count(MemberEvicted) for step in driver.steps]
    assert [count for count in evicted if count] == [1, 1]
