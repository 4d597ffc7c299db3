"""One session on a real ZooKeeper: what the servers say of it, TLS, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from groupkeeper.clients.zookeeper.registry import Registry
from groupkeeper.storage.connections.zookeeper import ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import ServerUnreachable
from groupkeeper.storage.connections.zookeeper_settings import (
    ZooKeeperSettings,
    ZooKeeperTls,
    parse_connection_string,
)
from tests.helpers.clients.certificates import make_certificates
from tests.helpers.clients.real_zookeeper import TICK_MS, RealZooKeeper
from tests.helpers.daemon.daemon import free_port

pytestmark = pytest.mark.registry


@pytest.mark.parametrize(("asked", "got"), [(100, TICK_MS), (5_000, 5_000), (200_000, 60_000)])
async def test_a_session_lasts_as_long_as_the_servers_say(zookeeper, asked, got):
    address = parse_connection_string(zookeeper.servers)
    settings = ZooKeeperSettings(address, session_timeout_ms=asked)
    async with ZooKeeperSession(settings) as session:
        assert session.timeout_ms == got
        assert session.id != 0


async def test_an_ended_session_leaves_no_thread_and_no_task(servers):
    before = threading.active_count(), len(asyncio.all_tasks())
    executor_threads = 1  # asyncio keeps those that it has once made
    for _ in range(3):
        async with Registry(servers) as registry:
            await registry.group("billing").create()
            await registry.group("billing").watch_instances()
    assert threading.active_count() <= before[0] + executor_threads + 1
    assert len(asyncio.all_tasks()) == before[1]


async def test_watching_a_quiet_node_again_and_again_leaves_one_watch(registry):
    group = registry.group("billing")
    await group.instance("a").register(["orders"])
    for _ in range(200):
        async with await group.watch_instances() as watch:
            assert len(watch.current) == 1
    client = registry._link.session()._client
    assert sum(map(len, client._child_watchers.values())) == 1


async def test_hundreds_of_calls_at_once_are_all_answered(registry):
    group = registry.group("billing")
    await asyncio.gather(*(group.commit_offset("orders", n, n) for n in range(50)))
    fetches = (group.fetch_offset("orders", n % 50) for n in range(2_000))
    assert await asyncio.gather(*fetches) == [n % 50 for n in range(2_000)]


# --- TLS ------------------------------------------------------------------------------------------


# kazoo leaves the socket of a failed handshake to the collector
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
async def test_over_tls_both_sides_show_a_certificate(tmp_path):
    make_certificates(tmp_path)
    secure_port = free_port()
    server = RealZooKeeper(
        tmp_path / "zookeeper",
        {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": secure_port,
            "secureClientPortAddress": "127.0.0.1",
            "ssl.keyStore.location": tmp_path / "server.pem",
            "ssl.trustStore.location": tmp_path / "ca.pem",
            "ssl.clientAuth": "need",
        },
    )
    await asyncio.to_thread(server.start)
    try:
        servers = f"127.0.0.1:{secure_port}"
        tls = ZooKeeperTls(tmp_path / "ca.pem", tmp_path / "client.crt", tmp_path / "client.key")
        async with Registry(servers, tls=tls) as registry:
            await registry.group("billing").commit_offset("orders", 0, 7)
            assert await registry.group("billing").fetch_offset("orders", 0) == 7
        for wrong in (
            None,  # no TLS at all
            ZooKeeperTls(tmp_path / "ca.pem"),  # no certificate of ours
            ZooKeeperTls(None, tls.cert_file, tls.key_file),  # an authority nobody here trusts
        ):
            with pytest.raises(ServerUnreachable):
                await Registry(servers, tls=wrong, connect_timeout_ms=700).open()
        gc.collect()
    finally:
        server.stop()
