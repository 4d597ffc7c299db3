"""The range assignor: each topic is cut into contiguous ranges (Kafka's ``RangeAssignor``).

Topics with the same number of partitions and the same subscribers are cut at the same positions.
Programs that join two topics rely on that. The disadvantage: the first members get the extra
partition of every topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from groupkeeper.coordinator.core.assignors.types import (
    Assignment,
    MemberSubscription,
    TopicPartition,
    partitions_by_topic,
    subscribers_by_topic,
    topics_by_member,
)


class RangeAssignor:
    """Assigns a range of a topic's partitions to each subscriber. If the division has a remainder,
    the first subscribers get one partition more.
    """

    name = "range"

    def assign(
        self, members: Sequence[MemberSubscription], partitions: Sequence[TopicPartition]
    ) -> Assignment:
        """Assign topic by topic, to subscribers in the order of ``MemberSubscription.place``."""
        topics = topics_by_member(members)
        subscribers = subscribers_by_topic(topics)
        assignment: Assignment = {member_id: [] for member_id in topics}
        for topic, of_topic in partitions_by_topic(partitions).items():
            if topic not in subscribers:
                continue
            share, extra = divmod(len(of_topic), len(subscribers[topic]))
            start = 0
            # further subscribers get an empty range
            for position, member_id in enumerate(subscribers[topic][: len(of_topic)]):
                end = start + share + (position < extra)
                assignment[member_id] += of_topic[start:end]
                start = end
        return assignment
