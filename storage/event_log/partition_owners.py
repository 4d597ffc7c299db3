"""Computes who owned a partition, from when to when and why, from the events of its group
(pure).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from groupkeeper.storage.segment_lines import EventDict

FOLLOWED: Final = "target_assignment"
"""The reason of an event in which a member follows its target assignment. The causes of the target
are more useful, so they are shown instead."""


class Cause(msgspec.Struct, frozen=True):
    """One reason of a rebalance, and the member that caused it."""

    reason: str
    member_id: str


class PartitionOwner(msgspec.Struct):
    """A span of time in which one member owned the partition."""

    since_ms: int
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    group_type: str
    generation: int
    causes: list[Cause]
    """The reasons why the member got the partition."""
    until_ms: int | None = None
    """The end of the span; None if no event shows an end."""
    ended_by: str = ""
    """The reason why the span ended."""


def partition_owners(
    events: Iterable[EventDict], topic: str, partition: int
) -> list[PartitionOwner]:
    """Return the owners of a partition, the oldest first. ``events`` are those of one group, in
    order.

    In a classic group, ownership lasts from one assignment to the next. The member may have stopped
    reading earlier, when it joined again.
    """
    history = _History(topic, partition)
    for event in events:
        history.apply(event)
    return history.owners


class _History:
    """The owners of one partition, from the events applied so far."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self.owners: list[PartitionOwner] = []
        self._members: dict[str, EventDict] = {}
        """Member id -> the last event that names its client."""
        self._causes: list[Cause] = []
        """The causes of the rebalances that began since the last assignment or target."""
        self._aim: tuple[str | None, list[Cause]] = None, []
        """The last member whose target got the partition, and the causes of that target. The member
        is None before the first target, and if the newest targets were too large to be listed."""

    def apply(self, event: EventDict) -> None:
        """Update the owners with the next event of the group. Events must come in their order."""
        if event["member_id"] and event["client_id"]:
            self._members[event["member_id"]] = event
        apply = _APPLIES.get(event["kind"])
        if apply is not None:
            apply(self, event)

    def _has(self, partitions: Mapping[str, list[int]]) -> bool:
        return self._partition in partitions.get(self._topic, ())

    def _owner(self) -> PartitionOwner | None:
        last = self.owners[-1] if self.owners else None
        return last if last is not None and last.until_ms is None else None

    def _begin(self, event: EventDict, member_id: str, causes: list[Cause]) -> None:
        known = self._members.get(member_id, {})
        self.owners.append(
            PartitionOwner(
                event["ts_ms"],
                member_id,
                known.get("instance_id"),
                known.get("client_id", ""),
                known.get("client_host", ""),
                event["group_type"],
                event["generation"],
                causes,
            )
        )

    def _end(self, event: EventDict, reason: str) -> None:
        owner = self._owner()
        if owner is not None:
            owner.until_ms, owner.ended_by = event["ts_ms"], reason

    # --- groups of both types ---

    def started(self, event: EventDict) -> None:
        self._causes.append(Cause(event["reason"], event["member_id"]))

    def deleted(self, event: EventDict) -> None:
        self._end(event, f"group_{event['reason']}")

    # --- classic groups ---

    def joined(self, event: EventDict) -> None:
        """Pass the partition to the new id of a static member that joined again. This happens only
        in a classic group, where no rebalance follows such a join.
        """
        owner = self._owner()
        is_replaced = owner is not None and owner.member_id == event["replaces"]
        if is_replaced and event["group_type"] != "consumer":
            self._end(event, "static_member_rejoin")
            cause = Cause("static_member_rejoin", event["member_id"])
            self._begin(event, event["member_id"], [cause])

    def left(self, event: EventDict) -> None:
        owner = self._owner()
        is_owner = owner is not None and owner.member_id == event["member_id"]
        if is_owner and event["group_type"] != "consumer":
            is_leave = event["kind"] == "member_leave"
            self._end(event, "member_leave" if is_leave else event["reason"])

    def assigned(self, event: EventDict) -> None:
        causes, self._causes = self._causes, []
        members = event["partitions"] or {}
        new = next((m for m, partitions in members.items() if self._has(partitions)), None)
        owner = self._owner()
        if owner is not None and owner.member_id == new:
            return
        self._end(event, "assignment" if event["partitions"] is not None else "unreadable")
        if new is not None:
            self._begin(event, new, causes)

    # --- consumer groups ---

    def aimed(self, event: EventDict) -> None:
        causes, self._causes = self._causes, []
        targets = event["targets"]
        if targets is None:
            self._aim = None, causes
            return
        aim = next((m for m, partitions in targets.items() if self._has(partitions)), None)
        if aim is not None and aim != self._aim[0]:
            self._aim = aim, causes

    def moved(self, event: EventDict) -> None:
        member_id, reason = event["member_id"], event["reason"]
        causes = self._aim[1] if reason == FOLLOWED else [Cause(reason, member_id)]
        if self._has(event["lost_partitions"]):
            self._end(event, reason)
        elif self._has(event["gained_partitions"]):
            self._begin(event, member_id, causes)


_APPLIES: Final = {
    "rebalance_start": _History.started,
    "group_deleted": _History.deleted,
    "member_join": _History.joined,
    "member_leave": _History.left,
    "member_evicted": _History.left,
    "assignment": _History.assigned,
    "target_assignment": _History.aimed,
    "partitions_moved": _History.moved,
}
