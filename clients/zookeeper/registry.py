"""Consumer groups in ZooKeeper, as kazoo-go and the classic consumers keep them.

.. code-block:: python

    async with Registry("zk1:2181,zk2:2181/kafka") as registry:
        me = registry.group("billing").new_instance()
        await me.register(["orders"])
        await me.claim_partition("orders", 0)

A registry is one session. When that is lost, every registration and claim of it is gone, and every
object of this registry raises SessionLost: open a new one. With ``reregister=True`` the registry
does it itself, and makes again what it had, as far as nobody else has it by then.
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
        """Return the group of this name, None if the list has none."""
        return next((each for each in self if each.name == name), None)


class Registry:
    """The groups below one connection string. Use it with ``async with``, or open and close it."""

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
        """Begin the session. Raises ServerUnreachable, NotAllowed."""
        await self._link.open()
        return self

    async def close(self) -> None:
        """End the session: its registrations and claims are gone at once. Watches end."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def groups(self) -> GroupList:
        """Return every group."""
        root = f"{self._link.chroot}/{CONSUMERS}"
        names = await offsets.names_below(self._link.session(), root)
        return GroupList(self.group(name) for name in names)

    def group(self, name: str) -> RegistryGroup:
        """Return the group of a name, which need not exist. Raises InvalidName."""
        return RegistryGroup(self._link, name, self._no_offset)

    async def wait_lost(self) -> SessionLost:
        """Wait until the session is lost, and return why."""
        return await self._link.wait_lost()

    async def wait_renewed(self) -> Renewal:
        """With ``reregister``: wait until a session was lost and the next one is ready."""
        return await self._link.wait_renewed()
