"""A registry in ZooKeeper with the methods of ``Cluster``, so that a plan can change its offsets.

A registry is the groups that consumers keep in ZooKeeper. The code that applies plans has no event
loop. So the registry has an event loop in its own thread. Its session stays alive while the command
waits for a Kafka server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from groupkeeper.clients.zookeeper.errors import ZooKeeperError
from groupkeeper.clients.zookeeper.names import MAX_OFFSET
from groupkeeper.clients.zookeeper.registry import Registry
from groupkeeper.coordinator.cli.zookeeper.options import registry_of
from groupkeeper.pipeline.restore.cluster import ClusterError, ClusterGroup, GroupBusy
from groupkeeper.pipeline.restore.plan import Committed, Log, Partition

SCHEME: Final = "zookeeper://"
"""The prefix of a registry's address in a plan."""

Result = TypeVar("Result")


class RegistryTarget:
    """The groups in a registry, as the source or the target of a plan. Use it in a ``with`` block,
    which connects and disconnects. All methods raise ClusterError if ZooKeeper does not answer.
    """

    def __init__(self, servers: str, config: Path | None, timeout_s: float) -> None:
        self.address = SCHEME + servers
        self._place = (servers, config, timeout_s)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._registry = self._await(self._open())
        except BaseException:
            self._end()
            raise
        return self

    async def _open(self) -> Registry:
        return await registry_of(*self._place).open()

    def __exit__(self, *_: object) -> None:
        try:
            self._await(self._registry.close())
        finally:
            self._end()

    def _end(self) -> None:
        self._await(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _await(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except ZooKeeperError as error:
            raise ClusterError(str(error)) from None

    # --- the methods of Cluster -------------------------------------------------------------------

    def groups(self) -> dict[str, ClusterGroup]:
        """Return every group, by name. A group with instances has the state Stable, any other group
        the state Empty.
        """
        return self._await(self._groups())

    async def _groups(self) -> dict[str, ClusterGroup]:
        found = await self._registry.groups()
        running = await asyncio.gather(*(each.instances() for each in found))
        return {
            each.name: ClusterGroup(each.name, "Stable" if instances else "Empty", "")
            for each, instances in zip(found, running, strict=True)
        }

    def members(self, group: str) -> list[str]:
        """Return the ids of the running instances."""
        return [each.id for each in self._await(self._registry.group(group).instances())]

    def offsets(self, groups: Sequence[str]) -> dict[str, dict[Partition, Committed]]:
        """Return every offset of these groups."""
        return {each: self._await(self._offsets(each)) for each in groups}

    async def _offsets(self, group: str) -> dict[Partition, Committed]:
        found = await self._registry.group(group).fetch_all_offsets()
        return {
            Partition(topic, partition): Committed(offset)
            for topic, partitions in found.items()
            for partition, offset in partitions.items()
        }

    def existing(self, partitions: Collection[Partition]) -> set[Partition]:
        """Return all of the partitions: a registry has no topics, so every offset can be stored."""
        return set(partitions)

    def logs(self, partitions: Collection[Partition]) -> dict[Partition, Log]:
        """Return a log without start and end for each partition: a registry knows neither."""
        return dict.fromkeys(partitions, Log())

    def commit(self, group: str, offsets: Mapping[Partition, Committed]) -> None:
        """Store offsets. Raises GroupBusy if the group has running instances."""
        self._refuse_running(group)
        self._await(self._commit(group, offsets))

    async def _commit(self, group: str, offsets: Mapping[Partition, Committed]) -> None:
        there = self._registry.group(group)
        await there.create()
        await asyncio.gather(
            *(
                there.commit_offset(topic, partition, committed.offset)
                for (topic, partition), committed in offsets.items()
            )
        )

    def delete(self, group: str, partitions: Collection[Partition]) -> None:
        """Delete offsets. Raises GroupBusy if the group has running instances."""
        self._refuse_running(group)
        self._await(self._delete(group, partitions))

    async def _delete(self, group: str, partitions: Collection[Partition]) -> None:
        there = self._registry.group(group)
        await asyncio.gather(*(there.delete_offset(*each) for each in partitions))

    def _refuse_running(self, group: str) -> None:
        if running := self.members(group):
            raise GroupBusy(f"{self.address}: group {group!r} has {len(running)} instances")


def shifted(
    offsets: Mapping[Partition, Committed], shift: int
) -> tuple[dict[Partition, Committed], list[str]]:
    """Return the offsets plus ``shift``, and a text for each offset that was left out.

    Metadata and leader epochs are dropped: ZooKeeper has neither. A negative offset is left out,
    because libraries use such numbers for "none", "earliest" or "latest". An offset that ``shift``
    moves out of the range of offsets is left out too.
    """
    found, left_out = {}, []
    for partition, committed in offsets.items():
        name = f"{partition.topic}-{partition.partition}"
        moved = committed.offset + shift
        if committed.offset < 0:
            left_out.append(f"{name}: {committed.offset} is no position")
        elif not 0 <= moved <= MAX_OFFSET:
            left_out.append(f"{name}: {committed.offset} moved by {shift} is no position")
        else:
            found[partition] = Committed(moved)
    return found, left_out
