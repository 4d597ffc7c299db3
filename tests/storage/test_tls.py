"""Stores in a real ZooKeeper and a real Consul that want TLS with certificates of both sides.

``test_postgres.py`` and ``test_kafka_topic_access.py`` have the other two.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from groupkeeper.coordinator.core.records import GroupRemoved
from groupkeeper.storage.backends.journal.driver import JournalDriver
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.base import StorageError
from tests.helpers.clients.certificates import make_certificates
from tests.helpers.clients.ecosystem import Unavailable
from tests.helpers.clients.real_consul import RealConsul
from tests.helpers.clients.real_zookeeper import RealZooKeeper
from tests.helpers.core.records import commit
from tests.helpers.daemon.daemon import free_port
from tests.helpers.storage.late_appends import TTL_MS
from tests.helpers.storage.storage_owner import IDENTITY, Owner

# kazoo leaves the socket of a failed handshake to the collector
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


class SecureSite(NamedTuple):
    """A server, and where its certificates are. They are valid for localhost only."""

    scheme: str
    port: int
    keys: Path

    def storage(self, host: str = "localhost", **parameters: str) -> JournalStorage:
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        driver = self._driver(f"{self.scheme}://{host}:{self.port}/secure?{query}")
        return JournalStorage(driver, node_id=1, name="host:1", lease_ttl_ms=TTL_MS)

    def _driver(self, url: str) -> JournalDriver:
        if self.scheme == "consul":
            from groupkeeper.storage.backends.consul.driver import ConsulDriver
            from groupkeeper.storage.backends.consul.url import parse_url as parse_consul

            return ConsulDriver(parse_consul(url, {}), append_timeout_ms=2_000, lease_ttl_ms=TTL_MS)
        from groupkeeper.storage.backends.zookeeper.driver import ZooKeeperDriver
        from groupkeeper.storage.backends.zookeeper.url import parse_url

        return ZooKeeperDriver(parse_url(url, {}), append_timeout_ms=2_000, lease_ttl_ms=TTL_MS)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("zookeeper", marks=pytest.mark.zookeeper),
        pytest.param("consul", marks=pytest.mark.consul),
    ],
)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureSite]:
    keys = tmp_path_factory.mktemp("keys")
    make_certificates(keys, "DNS:localhost")
    port = free_port()
    server: RealZooKeeper | RealConsul
    if request.param == "zookeeper":
        pytest.importorskip("kazoo")
        settings = {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "secureClientPort": port,
            "secureClientPortAddress": "127.0.0.1",
            "ssl.keyStore.location": str(keys / "server.pem"),
            "ssl.trustStore.location": str(keys / "ca.pem"),
            "ssl.clientAuth": "need",
        }
        server = RealZooKeeper(keys / "server", settings)
    else:
        pytest.importorskip("httpx2")
        files = {"ca_file": "ca.pem", "cert_file": "server.crt", "key_file": "server.key"}
        named = {name: str(keys / file) for name, file in files.items()}
        server = RealConsul(keys / "server", {**named, "verify_incoming": True})
        port = server.https_port
    try:
        server.start()
    except Unavailable as missing:
        pytest.skip(str(missing))
    yield SecureSite(request.param, port, keys)
    server.stop()


def own(keys: Path) -> dict[str, str]:
    """The parameters with the certificate of the client."""
    return {"cert_file": f"{keys / 'client.crt'}", "key_file": f"{keys / 'client.key'}"}


async def test_a_store_over_tls_keeps_what_it_acknowledged(site: SecureSite) -> None:
    parameters = {"ca_file": f"{site.keys / 'ca.pem'}", **own(site.keys)}
    owner = await Owner(site.storage(**parameters)).start()
    try:
        await owner.append(0, [commit("big", 5, metadata="x" * 1_000_000), commit("gone", 1)])
        await owner.append(1, [commit("small", 7)])
        await owner.append(0, [GroupRemoved("gone")])
        await owner.fold_all()
    finally:
        await owner.storage.close()
    again = await Owner(site.storage(**parameters)).start()
    await again.storage.close()
    assert again.model.keys == owner.model.keys


@pytest.mark.parametrize(
    ("wrong", "host", "reason"),
    [
        pytest.param({"ca_file": "ca.pem"}, "localhost", "bad certificate", id="none of ours"),
        pytest.param({"own": "yes"}, "localhost", "unable to get local issuer", id="unknown here"),
        pytest.param({"ca_file": "ca.pem", "own": "yes"}, "127.0.0.1", "is not valid", id="name"),
    ],
)
async def test_a_connection_that_one_side_does_not_trust_is_refused_with_the_reason(
    site: SecureSite, wrong: dict[str, str], host: str, reason: str
) -> None:
    parameters = own(site.keys) if "own" in wrong else {}
    if "ca_file" in wrong:
        parameters["ca_file"] = f"{site.keys / wrong['ca_file']}"
    storage = site.storage(host, **{"tls": "on", **parameters})
    with pytest.raises(StorageError, match=reason):
        await storage.open(IDENTITY)
    await storage.close()
    gc.collect()  # here, where the warning is ignored, and not in another test


async def test_a_client_without_tls_reaches_no_port_for_tls(site: SecureSite) -> None:
    storage = site.storage()
    with pytest.raises(StorageError):
        await storage.open(IDENTITY)
    await storage.close()
