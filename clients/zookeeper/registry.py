"""Consumer groups in ZooKeeper, stored as kazoo-go and the classic consumers do.

    async with Registry("zk1:2181,zk2:2181/kafka") as registry:
        me = registry.group("billing").new_instance()
        await me.register(["orders"])
        await me.claim_partition("orders", 0)

A registry is one session. When the session is lost, ZooKeeper deletes its registrations and claims.
Then every object of this registry raises SessionLost, and you open a new Registry. With
``reregister=True`` the registry opens a new session itself. It repeats its registrations and
claims, except those that another client has made in the meantime.
"""

from __future__ import annotations

from typing import Literal, Self

from groupkeeper.clients.zookeeper import offsets
from groupkeeper.clients.zookeeper.group import RegistryGroup
from groupkeeper.clients.zookeeper.link import Link, Renewal
from groupkeeper.clients.zookeeper.names import CONSUMERS
from groupkeeper.storage.connections.zookeeper_errors import SessionLost
from groupkeeper.storage.connections.zookeeper_settings import (
    ANYONE,
    CONNECT_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    AccessRule,
    ZooKeeperSettings,
    ZooKeeperTls,
    parse_connection_string,
)


class GroupList(tuple[RegistryGroup, ...]):
    """Groups, sorted by name."""

    __slots__ = ()

    def find(self, name: str) -> RegistryGroup | None:
        """Return the group of this name. Return None if the list does not contain it."""
        return next((each for each in self if each.name == name), None)


class Registry:
    """The groups below a connection string. Use ``async with``, or ``open`` and ``close``."""

    def __init__(  # noqa: PLR0913  what a connection needs
        self,
        servers: str,
        *,
        reregister: bool = False,
        no_offset: Literal[0, -1] = 0,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        digest: str | None = None,
        access: tuple[AccessRule, ...] = ANYONE,
        tls: ZooKeeperTls | None = None,
    ) -> None:
        settings = ZooKeeperSettings(
            parse_connection_string(servers),
            session_timeout_ms=session_timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
            digest=digest,
            access=access,
            tls=tls,
        )
        if no_offset not in (0, -1):
            raise ValueError("no_offset is 0, as kazoo-go has it, or -1")
        self._link = Link(settings, reregisters=reregister)
        self._no_offset: Literal[0, -1] = no_offset

    async def open(self) -> Self:
        """Begin the session. Raises ServerUnreachable if no server accepts it in time, and
        NotAllowed if the server does not know the credentials.
        """
        await self._link.open()
        return self

    async def close(self) -> None:
        """End the session. Its registrations and claims are deleted at once, and watches end."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def groups(self) -> GroupList:
        """Return all groups that exist in ZooKeeper."""
        root = f"{self._link.chroot}/{CONSUMERS}"
        names = await offsets.names_below(self._link.session(), root)
        return GroupList(self.group(name) for name in names)

    def group(self, name: str) -> RegistryGroup:
        """Return the group of this name. It need not exist. Raises InvalidName if the name cannot
        be part of a path.
        """
        return RegistryGroup(self._link, name, self._no_offset)

    async def wait_lost(self) -> SessionLost:
        """Wait until the session is lost, and return the reason. Raises SessionClosed if the
        registry is closed.
        """
        return await self._link.wait_lost()

    async def wait_renewed(self) -> Renewal:
        """Wait until the present session is lost, and a new session has replaced it. Without
        ``reregister``, no new session is opened, so the wait has no end.

        Raises SessionClosed if the registry is closed.
        """
        return await self._link.wait_renewed()
