"""A store in a real Consul."""

from __future__ import annotations

import asyncio
import uuid

from groupkeeper.storage.backends.journal.driver import JournalDriver
from groupkeeper.storage.backends.journal.store import JournalStorage
from tests.helpers.clients.real_consul import RealConsul
from tests.helpers.storage.consul_keys import ask, keys_below
from tests.helpers.storage.late_appends import TTL_MS
from tests.helpers.storage.storage_owner import Owner


class ConsulSite:
    """One store, and the processes that use it."""

    part_bytes = 128 * 1024

    def __init__(self, server: RealConsul) -> None:
        self.server = server
        self.prefix = f"s{uuid.uuid4().hex}"
        self.owners: list[Owner] = []

    def driver(self, port: int | None = None, timeout_ms: int = 5_000) -> JournalDriver:
        from groupkeeper.storage.backends.consul.driver import ConsulDriver
        from groupkeeper.storage.backends.consul.url import parse_url

        url = f"consul://127.0.0.1:{port or self.server.port}/{self.prefix}"
        return ConsulDriver(parse_url(url, {}), append_timeout_ms=timeout_ms, lease_ttl_ms=TTL_MS)

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

    async def end_life(self) -> None:
        """End the only running life of a process, as an observer does."""
        (life,) = await self.below("lives/")
        for kind in ("lives", "beats"):
            await self.ask(f"{kind}/{life}", method="DELETE")

    async def ask(self, key: str, query: str = "", method: str = "GET", body: bytes = b"") -> bytes:
        """Ask about a key of the store."""
        key = f"{self.prefix}/{key}"
        return await asyncio.to_thread(ask, self.server.address, key, query, method, body)

    async def below(self, prefix: str) -> list[str]:
        """Return what follows a prefix in the keys of the store."""
        return await asyncio.to_thread(keys_below, self.server.address, f"{self.prefix}/{prefix}")

    async def groups(self, shard: int) -> list[str]:
        return await self.below(f"groups/{shard}/")

    async def keyed(self, shard: int) -> list[str]:
        return await self.below(f"keyed/{shard}/")

    async def parts(self) -> list[str]:
        """Return the parts of group g of shard 0."""
        return await self.below("parts/groups/0/g/")

    async def journals(self) -> list[str]:
        """Return the ids of the lives that have a journal."""
        return await self.below("folds/")

    async def entries(self, life: str) -> list[str]:
        return await self.below(f"journal/{life}/")

    async def put_part(self, life: str, row: int, part: int) -> None:
        """Write a further part of an entry that does not exist."""
        await self.set_value(f"journal/{life}/{row:010d}.{part}", b"x")

    async def chunks(self) -> list[str]:
        return await self.below("events/")

    async def value_of(self, key: str) -> bytes:
        return await self.ask(key, "?raw")

    async def set_value(self, key: str, data: bytes) -> None:
        await self.ask(key, method="PUT", body=data)
