"""A store in a real PostgreSQL."""

from __future__ import annotations

import asyncio
import uuid

from groupkeeper.storage.backends.journal.driver import JournalDriver
from groupkeeper.storage.backends.journal.store import JournalStorage
from tests.helpers.storage.late_appends import TTL_MS
from tests.helpers.storage.real_postgres import RealPostgres
from tests.helpers.storage.storage_owner import Owner


class PostgresSite:
    """One store, and the processes that use it."""

    def __init__(self, server: RealPostgres) -> None:
        self.server = server
        self.schema = f"s{uuid.uuid4().hex}"
        self.owners: list[Owner] = []

    def driver(self, port: int | None = None, timeout_ms: int = 5_000) -> JournalDriver:
        from groupkeeper.storage.backends.postgres.driver import PostgresDriver
        from groupkeeper.storage.backends.postgres.url import parse_url

        url = self.server.url.replace(str(self.server.port), str(port or self.server.port))
        return PostgresDriver(
            parse_url(f"{url}{'&' if '?' in url else '?'}schema={self.schema}"),
            append_timeout_ms=timeout_ms,
            lease_ttl_ms=TTL_MS,
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

    async def sql(self, statement: str) -> list[dict[str, object]]:
        return await asyncio.to_thread(self.server.sql, statement, self.schema)

    async def execute(self, statement: str) -> None:
        import asyncpg

        settings = {"search_path": self.schema}
        connection = await asyncpg.connect(self.server.url, server_settings=settings)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def end_life(self) -> None:
        """End the only running life of a process, as an observer does."""
        await self.execute(
            "WITH gone AS (DELETE FROM nodes RETURNING life_id) "
            "UPDATE lives SET is_over = true FROM gone WHERE lives.life_id = gone.life_id"
        )
