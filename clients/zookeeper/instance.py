"""One instance of a group: its registration, and the partitions that it has claimed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from groupkeeper.clients.zookeeper.errors import (
    InstanceAlreadyRegistered,
    InstanceNotRegistered,
    PartitionClaimedByOther,
    PartitionNotClaimed,
    RegistrationChanged,
)
from groupkeeper.clients.zookeeper.link import Link
from groupkeeper.clients.zookeeper.names import GroupPaths, checked_name, text_of
from groupkeeper.clients.zookeeper.registration import Registration, SubscriptionPattern
from groupkeeper.clients.zookeeper.watches import Watch, at_node
from groupkeeper.storage.connections.zookeeper import ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import NodeChanged, NodeExists, NodeMissing

Subscription: TypeAlias = Iterable[str] | Mapping[str, int] | Registration
"""Topics, topics with their number of streams, or a whole registration."""


class RegistryInstance:
    """An instance of a group. It need not be registered. Two objects are equal if their groups and
    ids are the same.
    """

    def __init__(self, link: Link, paths: GroupPaths, instance_id: str) -> None:
        self.id = checked_name("instance", instance_id)
        self._link = link
        self._paths = paths
        self._path = paths.id(instance_id)

    def __repr__(self) -> str:
        return f"RegistryInstance({self.id!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RegistryInstance) and self._path == other._path

    def __hash__(self) -> int:
        return hash(self._path)

    # --- the registration -------------------------------------------------------------------------

    async def registered(self) -> bool:
        """Return True if the znode of the instance exists now."""
        return await self._link.session().exists(self._path)

    async def registration(self) -> Registration:
        """Return the registration. Raises InstanceNotRegistered if there is none, and BrokenNode if
        its content is invalid.
        """
        try:
            node = await self._link.session().get(self._path)
        except NodeMissing:
            raise self._not_registered() from None
        return Registration.decode(self._path, node.data)

    async def watch_registration(self) -> Watch[Registration | None]:
        """Watch the registration. The value is None while there is none.

        Raises InstanceNotRegistered if there is none at first.
        """
        watch = await Watch.begin(self._link.session(), at_node(self._path, Registration.decode))
        if watch.current is None:
            await watch.close()
            raise self._not_registered()
        return watch

    async def register(self, subscription: Subscription) -> None:
        """Register until ``deregister`` or the end of the session. Raises InstanceAlreadyRegistered
        if the id has a registration.
        """
        registration = _registration(subscription)
        session = self._link.session()
        try:
            await session.create(self._path, registration.encode(), ephemeral=True)
        except NodeExists:
            raise InstanceAlreadyRegistered(
                f"the instance {self.id!r} is registered already ({self._path})"
            ) from None
        self._hold(registration)

    async def register_white_list(self, expression: str, streams: int = 1) -> None:
        """Register for the topics that match a regular expression."""
        await self._register_matching(SubscriptionPattern.WHITE_LIST, expression, streams)

    async def register_black_list(self, expression: str, streams: int = 1) -> None:
        """Register for the topics that do not match a regular expression."""
        await self._register_matching(SubscriptionPattern.BLACK_LIST, expression, streams)

    async def _register_matching(
        self, pattern: SubscriptionPattern, expression: str, streams: int
    ) -> None:
        await self.register(Registration.matching(pattern, expression, streams, _now_s()))

    async def update_registration(self, subscription: Subscription) -> None:
        """Replace the registration. Raises InstanceNotRegistered if there is none, and
        RegistrationChanged if another client changes it during the call.
        """
        registration = _registration(subscription)
        session = self._link.session()
        try:
            node = await session.get(self._path)
            await session.set(self._path, registration.encode(), node.version)
        except NodeMissing:
            raise self._not_registered() from None
        except NodeChanged:
            raise self._changed() from None
        if self._path in self._link.held:
            self._hold(registration)

    async def deregister(self) -> None:
        """Delete the registration. Raises InstanceNotRegistered if there is none, and
        RegistrationChanged if another client changes it during the call.
        """
        session = self._link.session()
        try:
            node = await session.get(self._path)
            await session.delete(self._path, node)
        except NodeMissing:
            self._link.held.pop(self._path, None)
            raise self._not_registered() from None
        except NodeChanged:
            raise self._changed() from None
        self._link.held.pop(self._path, None)

    def _hold(self, registration: Registration) -> None:
        self._link.held[self._path] = lambda: registration.at(_now_s()).encode()

    def _not_registered(self) -> InstanceNotRegistered:
        return InstanceNotRegistered(f"the instance {self.id!r} is not registered ({self._path})")

    def _changed(self) -> RegistrationChanged:
        return RegistrationChanged(
            f"the registration of {self.id!r} was changed by another client ({self._path})"
        )

    # --- claims -----------------------------------------------------------------------------------

    async def claim_partition(self, topic: str, partition: int) -> None:
        """Claim a partition until ``release_partition`` or the end of the session.

        Does nothing if this session already has the claim. If an earlier session of this instance
        has the claim, the present session takes the claim over in one step, because a claim ends
        with its session. Raises PartitionClaimedByOther if another instance owns the partition.
        """
        path = self._paths.owner(topic, partition)
        session = self._link.session()
        while not await self._claim(session, path, topic, partition):
            continue
        self._link.held[path] = self.id.encode

    async def _claim(
        self, session: ZooKeeperSession, path: str, topic: str, partition: int
    ) -> bool:
        """Claim a partition. Return False if another client changed the claim during the call."""
        try:
            await session.create(path, self.id.encode(), ephemeral=True)
        except NodeExists:
            try:
                node = await session.get(path)
                owner = text_of(path, node.data)
                if owner != self.id:
                    raise PartitionClaimedByOther(topic, partition, owner) from None
                if node.owner != session.id:
                    await session.take_over(path, node)
            except (NodeMissing, NodeChanged, NodeExists):
                return False
        return True

    async def release_partition(self, topic: str, partition: int) -> None:
        """Release a partition. Raises PartitionNotClaimed if this instance does not own it."""
        path = self._paths.owner(topic, partition)
        session = self._link.session()
        self._link.held.pop(path, None)
        try:
            node = await session.get(path)
            if text_of(path, node.data) == self.id:
                await session.delete(path, node)
                return
        except (NodeMissing, NodeChanged):
            pass
        raise PartitionNotClaimed(f"{topic}-{partition} is not claimed by {self.id!r}")


def _registration(subscription: Subscription) -> Registration:
    if isinstance(subscription, Registration):
        return subscription
    return Registration.static(subscription, _now_s())


def _now_s() -> int:
    return int(time.time())
