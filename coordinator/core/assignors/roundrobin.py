"""The round-robin assignor: gives one partition to each member, again and again, until all are
assigned (Kafka's ``RoundRobinAssignor``).

A member that does not subscribe to the topic of a partition is left out for this partition, and
gets no other one instead, as in Kafka. So if subscriptions differ, the assignment may be uneven.
The sticky assignor balances such groups.
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
        """Give one partition to each member, again and again. A new topic continues with the next
        member, and does not start with the first one."""
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
