"""A coordinator that starts before the server of its store does not end: it tries again."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from groupkeeper import CoordinatorConfig, GroupCoordinator
from groupkeeper.storage.open import open_storage
from tests.helpers.daemon.daemon import free_port

URLS = (
    "postgresql://groupkeeper@127.0.0.1:{0}/groups",
    "zookeeper://127.0.0.1:{0}/groups",
    "consul://127.0.0.1:{0}/groups",
    "kafka://127.0.0.1:{0}/groups",
)
TRIES = 3


@pytest.mark.parametrize("url", URLS)
async def test_a_start_waits_for_the_server_of_its_store(url: str) -> None:
    storage = open_storage(url.format(free_port()), append_timeout_ms=300, lease_ttl_ms=300)
    config = CoordinatorConfig(retry_min_ms=10, retry_max_ms=10)
    coordinator = GroupCoordinator(storage, config)
    with capture_logs() as lines:
        starting = asyncio.create_task(coordinator.start())
        while [line["event"] for line in lines].count("open_failed") < TRIES:
            assert not starting.done(), starting.exception()
            await asyncio.sleep(0.01)
        await coordinator.stop()
        with pytest.raises((RuntimeError, asyncio.CancelledError)):
            await starting
