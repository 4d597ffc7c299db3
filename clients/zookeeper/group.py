"""One consumer group: its instances, the owners of its partitions, and its offsets."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable
from typing import Final, Literal

from groupkeeper.clients.zookeeper import offsets
from groupkeeper.clients.zookeeper.errors import BrokenNode, InvalidName, RunningInstances
from groupkeeper.clients.zookeeper.instance import RegistryInstance
from groupkeeper.clients.zookeeper.link import Link
from groupkeeper.clients.zookeeper.names import (
    MAX_OFFSET,
    MAX_PARTITION,
    GroupPaths,
    checked_number,
    number_of,
    text_of,
)
from groupkeeper.clients.zookeeper.watches import Look, Watch, at_node
from groupkeeper.storage.connections.zookeeper import ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import (
    NodeMissing,
    NodeNotEmpty,
)

MIN_OFFSET: Final = -2
"""The lowest offset. Some libraries store Kafka's -2 and -1, which mean the earliest and the latest
message."""


class InstanceList(tuple[RegistryInstance, ...]):
    """The instances of a group, sorted by id."""

    __slots__ = ()

    def find(self, instance_id: str) -> RegistryInstance | None:
        """Return the instance of this id. Return None if the list does not contain it."""
        return next((each for each in self if each.id == instance_id), None)


class RegistryGroup:
    """A group, by its name. It need not exist."""

    def __init__(self, link: Link, name: str, no_offset: Literal[0, -1]) -> None:
        self.name = name
        self._link = link
        self._paths = GroupPaths.of(link.chroot, name)
        self._no_offset = no_offset

    def __repr__(self) -> str:
        return f"RegistryGroup({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RegistryGroup) and self._paths == other._paths

    def __hash__(self) -> int:
        return hash(self._paths)

    async def exists(self) -> bool:
        """Return True if the group exists."""
        return await self._link.session().exists(self._paths.root)

    async def create(self) -> None:
        """Create the group if it does not exist."""
        await self._link.session().ensure(self._paths.root)

    async def delete(self) -> None:
        """Delete the group and its offsets. Raises RunningInstances if an instance is registered.

        If the instance was registered before the call, nothing is deleted. If the instance
        registers during the call, the offsets are already deleted when the error is raised.
        """
        session = self._link.session()
        has_begun = False
        while True:
            try:
                # ZooKeeper does not delete a znode with children. So no instance can register
                # between the check and this delete.
                await session.delete(self._paths.ids)
            except NodeMissing:
                pass
            except NodeNotEmpty:
                raise await self._running(has_begun=has_begun) from None
            has_begun = True
            for name in await offsets.names_below(session, self._paths.root):
                path = f"{self._paths.root}/{name}"
                if path != self._paths.ids:
                    await offsets.delete_below(session, path)
            try:
                await session.delete(self._paths.root)
            except NodeMissing:
                return
            except NodeNotEmpty:  # another client has created a znode during the deletion
                continue
            return

    async def other_nodes(self) -> list[str]:
        """Return the paths of the group's znodes that are neither registrations nor offsets.

        These are claims, and znodes of other programs. The paths begin below the group's own znode.
        Znodes with children are left out. ``delete`` deletes all these znodes too.
        """
        session = self._link.session()
        return [
            node.removeprefix(f"{self._paths.root}/")
            for name in await offsets.names_below(session, self._paths.root)
            if (path := f"{self._paths.root}/{name}") not in (self._paths.ids, self._paths.offsets)
            for node in await offsets.leaves(session, path)
        ]

    async def _running(self, *, has_begun: bool) -> RunningInstances:
        if has_begun:
            return RunningInstances(
                f"the group {self.name!r} was joined while it was deleted; its offsets are gone"
            )
        running = len(await self.instances())
        return RunningInstances(
            f"the group {self.name!r} has {running} running instances: it is not deleted"
        )

    # --- instances --------------------------------------------------------------------------------

    async def instances(self) -> InstanceList:
        """Return the registered instances. The list is empty if the group does not exist."""
        return self._listed(await offsets.names_below(self._link.session(), self._paths.ids))

    async def watch_instances(self) -> Watch[InstanceList]:
        """Watch the registered instances. The group need not exist."""
        return await Watch.begin(self._link.session(), self._look_at_instances)

    async def _look_at_instances(
        self, session: ZooKeeperSession, changed: Callable[[], None]
    ) -> Look[InstanceList]:
        while True:
            try:
                found = await session.children(self._paths.ids, changed)
            except NodeMissing:
                if not await session.exists(self._paths.ids, changed):
                    return Look(InstanceList(), None)
            else:
                return Look(self._listed(found.names), found.changed_in)

    def _listed(self, names: tuple[str, ...]) -> InstanceList:
        return InstanceList(self.instance(name) for name in names)

    def new_instance(self) -> RegistryInstance:
        """Return an instance with a new, unique id, ``host:uuid``."""
        return self.instance(f"{socket.gethostname()}:{uuid.uuid4()}")

    def instance(self, instance_id: str) -> RegistryInstance:
        """Return the instance with this id. It need not be registered.

        Raises InvalidName if the id cannot be part of a path.
        """
        return RegistryInstance(self._link, self._paths, instance_id)

    # --- owners -----------------------------------------------------------------------------------

    async def partition_owner(self, topic: str, partition: int) -> RegistryInstance | None:
        """Return the instance that has claimed a partition. Return None if it is not claimed."""
        path = self._paths.owner(topic, partition)
        try:
            node = await self._link.session().get(path)
        except NodeMissing:
            return None
        return self._owner(path, node.data)

    def _owner(self, path: str, data: bytes) -> RegistryInstance:
        try:
            return self.instance(text_of(path, data))
        except InvalidName as error:  # other programs may write any text there
            raise BrokenNode(path, str(error)) from None

    async def watch_partition_owner(
        self, topic: str, partition: int
    ) -> Watch[RegistryInstance | None]:
        """Watch the owner of a partition. The value is None while there is none."""
        path = self._paths.owner(topic, partition)
        return await Watch.begin(self._link.session(), at_node(path, self._owner))

    async def owners(self) -> dict[str, dict[int, str]]:
        """Return the owner of each claimed partition: topic -> partition -> id of the instance."""
        session = self._link.session()
        topics = await self.topics()
        found = await asyncio.gather(*(self._owners_of(session, topic) for topic in topics))
        return dict(zip(topics, found, strict=True))

    async def _owners_of(self, session: ZooKeeperSession, topic: str) -> dict[int, str]:
        root = f"{self._paths.owners}/{topic}"
        names = await offsets.names_below(session, root)
        partitions = sorted(number_of(f"{root}/{name}", name, MAX_PARTITION) for name in names)
        found = await asyncio.gather(*(self.partition_owner(topic, each) for each in partitions))
        pairs = zip(partitions, found, strict=True)
        return {partition: owner.id for partition, owner in pairs if owner is not None}

    async def topics(self) -> tuple[str, ...]:
        """Return the topics that have or had a claimed partition, sorted."""
        return await offsets.names_below(self._link.session(), self._paths.owners)

    # --- offsets ----------------------------------------------------------------------------------

    async def commit_offset(self, topic: str, partition: int, offset: int) -> None:
        """Store an offset, by convention the offset of the next message. Raises CommitConflict if
        other clients change the same offset during each attempt.
        """
        checked_number("offset", offset, MAX_OFFSET, MIN_OFFSET)
        await offsets.commit(self._link.session(), self._paths.offset(topic, partition), offset)

    async def fetch_offset(self, topic: str, partition: int) -> int:
        """Return an offset. If there is none, return the registry's ``no_offset``: 0 or -1."""
        path = self._paths.offset(topic, partition)
        found = await offsets.fetch(self._link.session(), path)
        return self._no_offset if found is None else found

    async def fetch_all_offsets(self) -> dict[str, dict[int, int]]:
        """Return every offset: topic -> partition -> offset."""
        return await offsets.fetch_all(self._link.session(), self._paths)

    async def delete_offset(self, topic: str, partition: int) -> None:
        """Delete the offset of one partition. If there is none, nothing happens."""
        path = self._paths.offset(topic, partition)
        await offsets.delete_below(self._link.session(), path)

    async def reset_offsets(self) -> None:
        """Delete every offset of the group."""
        await offsets.reset(self._link.session(), self._paths)
