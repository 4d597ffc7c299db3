"""An assignor for active and stand-by: the first member by id reads everything, the rest wait."""

from collections.abc import Sequence

from groupkeeper import Assignment, MemberSubscription, TopicPartition


class OneTakesAll:
    """Members offer it as ``one-takes-all``; the entry point in pyproject.toml says the same."""

    name = "one-takes-all"

    def assign(
        self, members: Sequence[MemberSubscription], partitions: Sequence[TopicPartition]
    ) -> Assignment:
        active = min(members, key=lambda member: member.member_id)
        assignment: Assignment = {member.member_id: [] for member in members}
        assignment[active.member_id] = sorted(p for p in partitions if p.topic in active.topics)
        return assignment
