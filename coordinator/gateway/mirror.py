"""The mirror: commits here are also committed in the upstream, so that groups can move back.

The upstream is the Kafka cluster behind the gateway. Only the newest offset of each partition is
sent there. The mirror never delays a commit here. Its lag is the age of the oldest offset that it
has not sent yet. After a restart every offset is sent again. Deletions are not mirrored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

import structlog

from groupkeeper.coordinator.core.errors import ErrorCode, error_name
from groupkeeper.coordinator.core.groups.group import Group
from groupkeeper.coordinator.core.records import OffsetsCommitted
from groupkeeper.coordinator.gateway.client import BrokerError
from groupkeeper.coordinator.gateway.upstream_groups import (
    GroupsError,
    UpstreamGroups,
    UpstreamOffset,
)
from groupkeeper.coordinator.runtime.line_limit import LineLimit

INTERVAL_S: Final = 1.0
"""The pause between two rounds. If a partition gets several commits in this time, only the last is
sent.
"""
OFFSETS_AT_ONCE: Final = 1_000
"""The largest number of offsets in one request."""
GROUPS_AT_ONCE: Final = 1_000
"""The number of groups for which each round checks whether they and their offsets still exist."""
LOG_EVERY_S: Final = 60.0
_REPEATED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of a request that is sent again in the next round."""

_log = structlog.get_logger("groupkeeper.gateway")


class UpstreamMirror:
    """Sends the newest offsets of groups that changed."""

    def __init__(
        self,
        groups: UpstreamGroups,
        live_groups: Callable[[], Iterator[Mapping[str, Group]]],
        is_ours: Callable[[], bool],
        is_loading: Callable[[str], bool],
    ) -> None:
        """``live_groups`` yields the groups of each shard that answers. ``is_loading`` returns True
        if the shard of a group does not answer. Nothing is sent while ``is_ours`` returns False,
        because the upstream may then be the wrong cluster.
        """
        self._groups = groups
        self._live_groups = live_groups
        self._is_ours = is_ours
        self._is_loading = is_loading
        self._changed: dict[str, float] = {}
        """Group -> when its oldest offset that is not sent was committed, by the loop's clock."""
        loop = asyncio.get_running_loop()
        self._now_s = loop.time
        self._lines = LineLimit(loop.time, LOG_EVERY_S, 1)
        self._task: asyncio.Task[None] | None = None
        self._sent: dict[str, dict[tuple[str, int], tuple[int, int, str]]] = {}
        """Group -> (topic, partition) -> the last offset, leader epoch and metadata that we sent.
        Each round deletes some entries that the groups no longer have, so that they do not
        accumulate.
        """
        self._noted: list[Mapping[str, Group]] = []
        """The shards whose groups ``_note_loaded`` has seen. A shard that is loaded again is a new
        object.
        """
        self.refused = 0
        """The number of offsets that the upstream refused since the start."""

    def start(self) -> None:
        """Begin to send, first the offsets of all groups."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End the rounds. Then try for ``INTERVAL_S`` to send the waiting offsets a last time."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await self.round()

    @property
    def waiting_groups(self) -> int:
        """The number of groups with offsets that are not sent yet."""
        return len(self._changed)

    @property
    def lag_s(self) -> float:
        """The age of the oldest offset that is not sent yet; 0 if there is none."""
        return self._now_s() - min(self._changed.values()) if self._changed else 0.0

    def committed(self, record: OffsetsCommitted) -> None:
        """Remember that a group has a new durable commit."""
        self._changed.setdefault(record.group_id, self._now_s())

    async def _run(self) -> None:
        while True:
            try:
                await self._note_loaded()
                await self.round()
            except Exception:  # noqa: BLE001 - a round must not be the last one
                _log.exception("upstream_mirror_failed")
            await asyncio.sleep(INTERVAL_S)

    async def _note_loaded(self) -> None:
        """Mark all groups with offsets as changed, in the shards that were loaded since the last
        call.

        Such a shard may have a commit that was not reported, because its append failed although the
        commit was durable.
        """
        before = self._noted
        self._noted = [*self._live_groups()]
        for groups in self._noted:
            if any(groups is each for each in before):
                continue
            for group_id in list(groups):
                group = groups.get(group_id)
                if group is not None and group.offsets:
                    self._changed.setdefault(group_id, self._now_s())
            await asyncio.sleep(0)

    async def round(self) -> None:
        """Send the offsets of all groups that changed. Groups that fail are sent again later."""
        if not self._is_ours():
            return
        for group_id in [*self._changed]:
            since_s = self._changed.pop(group_id)
            try:
                done = await self._send(group_id)
            except (BrokerError, GroupsError) as error:
                if self._lines.allow("waits") is not None:
                    _log.warning("mirror_waits", group=group_id, problem=str(error))
                done = False
            except BaseException:
                self._changed[group_id] = since_s
                raise
            if not done:
                self._changed[group_id] = since_s
        self._forget_deleted()

    async def _send(self, group_id: str) -> bool:
        """Send those offsets of a group that the upstream does not have yet. Return True if no
        offset is left for a later round.
        """
        if self._is_loading(group_id):
            return False
        offsets = self._unsent(group_id)
        if not offsets:
            return True
        coordinator = await self._groups.coordinator_of(group_id)
        if coordinator is None:
            raise GroupsError("the upstream has no groups")
        sent = self._sent.setdefault(group_id, {})
        done = True
        for start in range(0, len(offsets), OFFSETS_AT_ONCE):
            portion = offsets[start : start + OFFSETS_AT_ONCE]
            errors = await self._groups.commit(coordinator, group_id, portion)
            for each in portion:
                code = errors.get((each.topic, each.partition), ErrorCode.NONE)
                if code in _REPEATED:
                    done = False
                    continue
                sent[each.topic, each.partition] = each[2:]
                if code:
                    self.refused += 1
                    self._log_refused(group_id, each, code)
        return done

    def _unsent(self, group_id: str) -> list[UpstreamOffset]:
        group = self._group(group_id)
        if group is None:
            self._sent.pop(group_id, None)
            return []
        sent = self._sent.get(group_id, {})
        return [
            UpstreamOffset(topic, partition, stored.offset, stored.leader_epoch, stored.metadata)
            for topic, rows in group.offsets.items()
            for partition, stored in rows.items()
            if sent.get((topic, partition)) != (stored.offset, stored.leader_epoch, stored.metadata)
        ]

    def _forget_deleted(self) -> None:
        """Delete the entries of deleted groups and offsets from ``_sent``, for ``GROUPS_AT_ONCE``
        groups. The groups that were checked longest ago come first.
        """
        for group_id in [*islice(self._sent, GROUPS_AT_ONCE)]:
            sent = self._sent.pop(group_id)
            if not self._is_loading(group_id):
                group = self._group(group_id)
                offsets = {} if group is None else group.offsets
                for topic, partition in [*sent]:
                    if partition not in offsets.get(topic, ()):
                        del sent[topic, partition]
            if sent:
                self._sent[group_id] = sent  # behind all others

    def _group(self, group_id: str) -> Group | None:
        for groups in self._live_groups():
            if group_id in groups:
                return groups[group_id]
        return None

    def _log_refused(self, group_id: str, offset: UpstreamOffset, code: int) -> None:
        if self._lines.allow("refused") is not None:
            _log.warning(
                "mirror_refused", group=group_id, topic=offset.topic, problem=error_name(code)
            )
