"""Commits and reads single offsets, for hosts without group members: tools, batch jobs."""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.core.records import NO_OFFSET
from groupkeeper.coordinator.core.wire_values import int32, int64, text
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.embed.messages import (
    OffsetCommitData,
    OffsetCommitRequest,
    OffsetFetchRequest,
    raise_first,
)


class OffsetManager:
    """Commits and reads offsets through the coordinator, never directly in the store.

    Every method raises GroupError if the coordinator refuses.
    """

    def __init__(self, coordinator: GroupCoordinator) -> None:
        """``coordinator`` must be started. Raises TypeError if it is no GroupCoordinator."""
        if not isinstance(coordinator, GroupCoordinator):
            raise TypeError(f"coordinator must be a GroupCoordinator, not {coordinator!r}")
        self._coordinator = coordinator

    async def commit_offset(
        self, group_id: str, topic: str, partition: int, offset: int, metadata: str = ""
    ) -> None:
        """Commit one offset; it is durable on return.

        Raises GroupError(UNKNOWN_MEMBER_ID) while the group has members.
        """
        topic, partition = text("topic", topic), int32("partition", partition)
        data = OffsetCommitData(offset, metadata)
        request = OffsetCommitRequest(group_id=group_id, offsets={topic: {partition: data}})
        (await self._coordinator.commit_offsets(request)).raise_for_error()

    async def get_offset(self, group_id: str, topic: str, partition: int) -> int | None:
        """Return the committed offset of one partition, or None if there is none.

        An offset of -1 is None too, since both are the same on the wire. Other negative offsets are
        returned as they are.
        """
        topic, partition = text("topic", topic), int32("partition", partition)
        return await self._coordinator.get_committed_offset(group_id, topic, partition)

    async def get_all_offsets(self, group_id: str) -> dict[str, dict[int, int]]:
        """Return the committed offsets of a group, by topic, then by partition.

        Offsets of -1 are left out, as in ``get_offset``.
        """
        committed = await self._committed(group_id)
        known = {
            topic: {partition: offset for partition, offset in rows.items() if offset != NO_OFFSET}
            for topic, rows in committed.items()
        }
        return {topic: rows for topic, rows in known.items() if rows}

    async def reset_offsets(self, group_id: str) -> None:
        """Delete all committed offsets of a group. Its consumers then start where
        ``auto.offset.reset`` says.

        Raises GroupError(GROUP_SUBSCRIBED_TO_TOPIC) while a member subscribes to one of the topics.
        Then nothing is deleted.
        """
        group = await self._coordinator.get_group(group_id)
        offsets = await self._committed(group_id)
        if not offsets:
            return
        subscribed = (
            set()
            if group is None
            else {topic for member in group.members.values() for topic in member.subscription}
        )
        if subscribed & offsets.keys():
            raise GroupError(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        raise_first(await self._coordinator.delete_offsets(group_id, offsets))

    async def _committed(self, group_id: str) -> dict[str, dict[int, int]]:
        """Return all offsets, also those that are -1."""
        fetched = await self._coordinator.fetch_offsets(OffsetFetchRequest(group_id=group_id))
        return {
            topic: {partition: each.offset for partition, each in rows.items()}
            for topic, rows in fetched.offsets.items()
        }

    def validate_offset(self, offset: int, min_offset: int, max_offset: int) -> None:
        """Raise GroupError(OFFSET_OUT_OF_RANGE) unless the offset is at least the minimum and at
        most the maximum.
        """
        offset = int64("offset", offset)
        if not int64("min_offset", min_offset) <= offset <= int64("max_offset", max_offset):
            raise GroupError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {min_offset} and {max_offset}",
            )
