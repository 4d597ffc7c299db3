"""The round-robin assignor: deals all partitions in turn (Kafka's ``RoundRobinAssignor``).

If subscriptions differ, a member that does not subscribe to a topic is skipped and gets nothing in
return, as in Kafka. The sticky assignor balances such groups.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from groupkeeper.coordinator.core.assignors.types import (
    Assignment,
    MemberSubscription,
    TopicPartition,
    partitions_by_topic,
    subscribers_by_topic,
    topics_by_member,
)


class RoundRobinAssignor:
    """Deals the sorted partitions one at a time to the members, in the order of
    ``MemberSubscription.place``.
    """

    name = "roundrobin"

    def assign(
        self, members: Sequence[MemberSubscription], partitions: Sequence[TopicPartition]
    ) -> Assignment:
        """Deal the partitions in turn. A new topic does not start again with the first member."""
        topics = topics_by_member(members)
        subscribers = subscribers_by_topic(topics)
        position_of = {member_id: position for position, member_id in enumerate(topics)}
        assignment: Assignment = {member_id: [] for member_id in topics}
        seats_of: dict[tuple[str, ...], list[int]] = {}
        turn = 0
        for topic, of_topic in partitions_by_topic(partitions).items():
            if topic not in subscribers:
                continue
            # The positions of the topic's subscribers among all members. A bisection finds the next
            # one, so a topic with few subscribers in a large group needs no walk over all members.
            dealt_to = subscribers[topic]
            if dealt_to not in seats_of:
                seats_of[dealt_to] = [position_of[member_id] for member_id in dealt_to]
            seats = seats_of[dealt_to]
            seat = bisect_left(seats, turn) % len(seats)
            for partition in of_topic:
                assignment[dealt_to[seat]].append(partition)
                turn = seats[seat] + 1
                seat = (seat + 1) % len(seats)
        return assignment
