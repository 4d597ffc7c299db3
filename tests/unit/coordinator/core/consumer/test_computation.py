from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.coordinator.core.cluster.image import TopicInfo
from groupkeeper.coordinator.core.consumer.assigning import GroupSpec
from groupkeeper.coordinator.core.consumer.computation import TargetComputation


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.data())
def test_the_numbers_of_a_target_become_topics_and_partitions(
    counts: list[int], data: st.DataObject
) -> None:
    topics = [TopicInfo(f"t{at}", f"id-{at:02}", count) for at, count in enumerate(counts)]
    partitions = [(topic.topic_id, p) for topic in topics for p in range(topic.partitions)]
    members = [("a", None), ("b", "instance")]
    owners = [data.draw(st.sampled_from((0, 1, 2))) for _ in partitions]
    target = [[n for n, owner in enumerate(owners) if owner == member] for member in (0, 1)]
    computation = TargetComputation(7, "uniform", GroupSpec(counts, [], [], []), members, topics)

    found = dict(zip(computation.members, map(computation.converter(), target), strict=True))

    assert list(found) == members
    for numbers, by_topic in zip(target, found.values(), strict=True):
        assert [(t, p) for t, own in by_topic.items() for p in own] == [
            partitions[number] for number in numbers
        ]
        assert all(by_topic.values())
