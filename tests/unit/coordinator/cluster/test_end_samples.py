"""Samples of ends: what changed, once, and all of it again after a load."""

from __future__ import annotations

from groupkeeper.coordinator.cluster.end_samples import SAMPLE_PARTITIONS, EndSampler
from groupkeeper.coordinator.core.cluster.image import TopicImage, TopicInfo
from groupkeeper.coordinator.core.events import EndOffset, Event


class Ends:
    """Topics whose ends the test sets."""

    def __init__(self, *topics: TopicInfo) -> None:
        self.image = TopicImage.of(*topics)
        self.ends: dict[tuple[str, int], int] = {}
        self.written: list[Event] = []
        self.is_loaded = True
        self.loads = 1
        self.sampler = EndSampler(self, self.write, lambda: self.loads)

    def end_offset(self, topic_id: str, partition: int) -> int:
        return self.ends.get((topic_id, partition), 0)

    def write(self, events: list[Event]) -> bool:
        if self.is_loaded:
            self.written += events
        return self.is_loaded

    def sample(self) -> dict[tuple[str, int], int]:
        """Take a sample and return what was written of it."""
        self.written.clear()
        for _ in self.sampler.sample():
            pass
        found = {}
        for event in self.written:
            assert isinstance(event, EndOffset)
            for topic in event.topics:
                for row in topic.partitions:
                    found[topic.topic, row.partition] = row.offset
        return found


def test_an_end_is_told_when_it_changed_and_not_again() -> None:
    ends = Ends(TopicInfo("orders", "a", 3), TopicInfo("clicks", "b", 1))
    assert ends.sample() == {}
    ends.ends = {("a", 0): 5, ("a", 2): 7, ("b", 0): 1}
    assert ends.sample() == {("orders", 0): 5, ("orders", 2): 7, ("clicks", 0): 1}
    assert len(ends.written) == 1
    assert ends.sample() == {}
    ends.ends["a", 2] = 8
    assert ends.sample() == {("orders", 2): 8}


def test_all_ends_are_told_again_after_a_load() -> None:
    ends = Ends(TopicInfo("orders", "a", 2))
    ends.ends = {("a", 0): 5}
    ends.sample()
    ends.loads += 1
    assert ends.sample() == {("orders", 0): 5}


def test_what_could_not_be_written_is_told_next_time() -> None:
    ends = Ends(TopicInfo("orders", "a", 2))
    ends.ends = {("a", 0): 5}
    ends.is_loaded = False
    ends.sample()
    ends.is_loaded = True
    assert ends.sample() == {("orders", 0): 5}


def test_a_topic_that_comes_back_under_another_id_is_told_anew() -> None:
    ends = Ends(TopicInfo("orders", "a", 1))
    ends.ends = {("a", 0): 5}
    ends.sample()
    ends.image = TopicImage.of(TopicInfo("orders", "z", 1))
    assert ends.sample() == {}
    ends.ends["z", 0] = 5
    assert ends.sample() == {("orders", 0): 5}


def test_many_partitions_are_looked_at_in_portions() -> None:
    count = 3 * SAMPLE_PARTITIONS
    ends = Ends(TopicInfo("orders", "a", count))
    ends.ends = {("a", partition): 1 for partition in range(count)}
    turns = len(list(ends.sampler.sample()))
    assert turns == 3
    assert len(ends.written) == 3
