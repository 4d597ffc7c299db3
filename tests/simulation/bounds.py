"""Checks what the bounds of groups refuse: everything that does not fit, and nothing else.

Sizes are computed from the content of the shards, not from the coordinator's own sums.
"""

from __future__ import annotations

from typing import Any, Final

from groupkeeper.coordinator.core.classic.saved import to_record
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.records import SavedGroup
from groupkeeper.coordinator.core.requests.membership import JoinGroup
from groupkeeper.coordinator.core.requests.offsets import OffsetCommit
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.core.state import ShardState
from groupkeeper.storage.base import ShardId
from groupkeeper.storage.codec.records import encode_record

_LEAST_SHARE: Final = 0.4
"""A refused offset is justified only if the group has used at least this share of its bound,
encoded. The coordinator's sums are upper bounds. They are about twice the size of short offsets.
"""
_SMALL_BYTES: Final = 1_000_000
"""Groups with a larger bound than this never reach it in a world."""

_Offset = tuple[str, int]
"""(topic, partition)."""


class Headcount:
    """The groups of all shards of one process. A loading shard counts with its last groups."""

    def __init__(self) -> None:
        self._of_shard: dict[ShardId, int] = {}

    def after_step(self, shard: ShardState) -> None:
        self._of_shard[shard.shard_id] = len(shard.groups)

    def total(self) -> int:
        return sum(self._of_shard.values())


class Room:
    """The state before a request."""

    def __init__(self, shard: ShardState, headcount: Headcount, request: Request) -> None:
        self._request = request
        self._groups = headcount.total()
        self._group_id = request.group_id or ""
        self._is_there = self._group_id in shard.groups
        self._notes: dict[_Offset, int] = {}
        self._taken = 0
        self._is_small = shard.limits.max_group_bytes < _SMALL_BYTES
        if self._is_small and self._is_there and isinstance(request, OffsetCommit):
            self._notes = _notes_of(shard, self._group_id)
            self._taken = _encoded_bytes(shard, self._group_id)

    def check(self, shard: ShardState, result: Any) -> None:
        """Raise AssertionError if the answer refuses what fits, or accepts what does not fit."""
        self._check_number(shard, result)
        if self._is_small and result is not None and isinstance(self._request, OffsetCommit):
            self._check_size(shard, self._request, result)

    def _check_number(self, shard: ShardState, result: Any) -> None:
        most, name = shard.limits.max_groups, self._group_id
        is_created = name in shard.groups and not self._is_there
        assert not is_created or self._groups < most, f"{name}: one group more than {most}"
        if isinstance(self._request, JoinGroup | OffsetCommit) and _is_turned_away(result):
            assert not self._is_there, f"{name}: turned away, and is there"
            assert self._groups >= most, f"{name}: turned away from {self._groups} groups"

    def _check_size(self, shard: ShardState, request: OffsetCommit, result: Any) -> None:
        bound = shard.limits.max_group_bytes
        taken, stored = _encoded_bytes(shard, self._group_id), _notes_of(shard, self._group_id)
        grown = sum(max(0, size - self._notes.get(key, -1)) for key, size in stored.items())
        assert taken <= bound or not grown, f"{self._group_id}: larger than {bound} bytes: {taken}"
        # What it may have come to where an offset was refused. If a commit names a partition twice,
        # its larger metadata counts, and the last one is stored.
        most = self._taken + sum(
            max(0, size - self._notes.get(key, -1))
            for key, size in _sizes(shard, request, result, ErrorCode.NONE).items()
        )
        for (topic, number), size in _sizes(shard, request, result, _FULL).items():
            where = f"{self._group_id}: {topic} {number}"
            held = self._notes.get((topic, number), -1)
            assert size > held, f"{where} is refused, and takes less than before"
            assert most + size >= bound * _LEAST_SHARE, f"{where} is refused, and fits: {most}"


_FULL: Final = ErrorCode.INVALID_COMMIT_OFFSET_SIZE


def _sizes(
    shard: ShardState, request: OffsetCommit, result: Any, code: ErrorCode
) -> dict[_Offset, int]:
    """Return the size of the metadata of each offset with this answer. Of an offset that is named
    twice, the larger one counts.
    """
    told = {(t, i, n) for t, i, parts in result.topics or () for n, error in parts if error is code}
    sizes: dict[_Offset, int] = {}
    for topic, topic_id, partitions in request.topics:
        info = shard.find_topic(topic, topic_id, by_id=request.by_topic_id)
        for number, _, _, metadata in partitions:
            if info is not None and (topic, topic_id, number) in told:
                size = len((metadata or "").encode())
                sizes[info.name, number] = max(size, sizes.get((info.name, number), 0))
    return sizes


def _is_turned_away(result: Any) -> bool:
    if result is None:
        return False
    codes = {e for _, _, parts in getattr(result, "topics", None) or () for _, e in parts}
    return ErrorCode.COORDINATOR_NOT_AVAILABLE in {result.error, *codes}


def _encoded_bytes(shard: ShardState, group_id: str) -> int:
    """Return the size of a group with its members. Members count before they have a record."""
    saved, group = shard.saved(group_id), shard.groups.get(group_id)
    if saved is None or group is None:
        return 0
    members = None if saved.metadata is None else to_record(group)
    return len(encode_record(SavedGroup(group_id, members, saved.offsets)))


def _notes_of(shard: ShardState, group_id: str) -> dict[_Offset, int]:
    """Return the size of the metadata of each offset of a group."""
    group = shard.groups.get(group_id)
    if group is None:
        return {}
    return {(t, n): len(o.metadata.encode()) for t, n, o in group.stored_offsets()}
