"""Measure the stores in ZooKeeper and Consul beside their raw clients."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import httpx2
from kazoo.client import KazooClient

from bench.append_series import Series, print_beside
from bench.storage_bench import Load
from groupkeeper.storage.open import open_storage
from tests.helpers.clients.real_consul import RealConsul
from tests.helpers.clients.real_zookeeper import RealZooKeeper


async def measure_zookeeper(directory: Path, appends: int) -> None:
    """Let the store and kazoo take turns. kazoo answers in a thread of its own."""
    server = RealZooKeeper(directory)
    server.start()
    client = KazooClient(server.servers)
    await asyncio.to_thread(client.start)
    load = Load(open_storage(f"zookeeper://{server.servers}/bench", append_timeout_ms=60_000), 100)
    try:
        await load.start()
        ours, theirs = Series("ZooKeeper, an append of 64"), Series("kazoo, the same bytes")
        for row in range(appends):
            items = load.items()
            await ours.measure(lambda items=items: load.storage.append(items))
            data = load.storage._journal.entries[-1].payload
            create = partial(client.create, f"/raw-{row}", data)
            await theirs.measure(lambda create=create: asyncio.to_thread(create))
        print_beside(ours, theirs)
    finally:
        await load.storage.close()
        client.stop()
        server.stop()


async def measure_consul(directory: Path, appends: int) -> None:
    """Let the store and a plain HTTP client take turns."""
    server = RealConsul(directory)
    server.start()
    url = f"consul://{server.address}/bench?mirror=off"
    load = Load(open_storage(url, append_timeout_ms=60_000), 100)
    try:
        async with httpx2.AsyncClient(base_url=f"http://{server.address}") as client:
            await load.start()
            ours, theirs = Series("Consul, an append of 64"), Series("HTTP, the same bytes")
            for row in range(appends):
                items = load.items()
                await ours.measure(lambda items=items: load.storage.append(items))
                data = load.storage._journal.entries[-1].payload
                put = partial(client.put, f"/v1/kv/raw-{row}", content=data)
                await theirs.measure(put)
        print_beside(ours, theirs)
    finally:
        await load.storage.close()
        server.stop()
