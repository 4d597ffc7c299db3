"""A store in a real ZooKeeper."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from groupkeeper.storage.backends.journal.driver import JournalDriver
from groupkeeper.storage.backends.journal.store import JournalStorage
from tests.helpers.clients.real_zookeeper import RealZooKeeper
from tests.helpers.storage.late_appends import TTL_MS
from tests.helpers.storage.storage_owner import Owner


class ZooKeeperSite:
    """One store, and the processes that use it."""

    part_bytes = 128 * 1024

    def __init__(self, server: RealZooKeeper) -> None:
        self.server = server
        self.chroot = f"/s{uuid.uuid4().hex}"
        self.root = f"{self.chroot}/groupkeeper"
        self.owners: list[Owner] = []
        self.user = ""

    def driver(self, port: int | None = None, timeout_ms: int = 5_000) -> JournalDriver:
        from groupkeeper.storage.backends.zookeeper.driver import ZooKeeperDriver
        from groupkeeper.storage.backends.zookeeper.url import parse_url

        url = f"zookeeper://{self.user}127.0.0.1:{port or self.server.port}{self.chroot}"
        return ZooKeeperDriver(
            parse_url(url, {}), append_timeout_ms=timeout_ms, lease_ttl_ms=TTL_MS
        )

    def storage(
        self, node_id: int = 1, port: int | None = None, timeout_ms: int = 5_000
    ) -> JournalStorage:
        driver = self.driver(port, timeout_ms)
        return JournalStorage(driver, node_id=node_id, name=f"host:{node_id}", lease_ttl_ms=TTL_MS)

    async def owner(
        self, node_id: int = 1, port: int | None = None, timeout_ms: int = 5_000
    ) -> Owner:
        owner = Owner(self.storage(node_id, port, timeout_ms))
        self.owners.append(owner)
        return await owner.start()

    async def ask(self, work: Any) -> Any:
        """Call a function with a connected client of kazoo."""
        from tests.helpers.storage.zookeeper_nodes import kazoo

        def ask() -> Any:
            with kazoo(self.server.servers) as client:
                return work(client)

        return await asyncio.to_thread(ask)

    async def end_life(self) -> None:
        """End the only running life of a process, as an observer does."""

        def end(client: Any) -> None:
            (life,) = client.get_children(f"{self.root}/nodes")
            client.delete(f"{self.root}/nodes/{life}")

        await self.ask(end)

    async def below(self, path: str) -> list[str]:
        from tests.helpers.storage.zookeeper_nodes import children

        return await self.ask(lambda client: children(client, f"{self.root}/{path}"))

    async def groups(self, shard: int) -> list[str]:
        return await self.below(f"groups/{shard}")

    async def keyed(self, shard: int) -> list[str]:
        return await self.below(f"keyed/{shard}")

    async def parts(self) -> list[str]:
        """Return the parts of group g of shard 0."""
        return await self.below("groups/0/g")

    async def journals(self) -> list[str]:
        """Return the ids of the lives that have a journal."""
        return await self.below("lives")

    async def entries(self, life: str) -> list[str]:
        return await self.below(f"lives/{life}")

    async def put_part(self, life: str, row: int, part: int) -> None:
        """Write a further part of an entry that does not exist."""
        path = f"{self.root}/lives/{life}/{row:010d}.{part}"
        await self.ask(lambda client: client.create(path, b"x"))

    async def chunks(self) -> list[str]:
        return await self.below("events")

    async def value_of(self, path: str) -> bytes:
        return await self.ask(lambda client: client.get(f"{self.root}/{path}")[0])

    async def set_value(self, path: str, data: bytes) -> None:
        await self.ask(lambda client: client.set(f"{self.root}/{path}", data))
