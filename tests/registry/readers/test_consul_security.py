"""A Consul that asks for certificates and tokens."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from uuid import uuid4

import pytest

from groupkeeper.clients.readers.consul_group import ConsulGroup
from groupkeeper.storage.connections.consul_errors import ConsulRefused, ConsulUnavailable
from tests.helpers.clients.real_consul import RealConsul, consul

pytestmark = pytest.mark.registry

MASTER = str(uuid4())
UNKNOWN = "5a1d9c76-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealConsul]:
    keys = tmp_path_factory.mktemp("keys")
    for arguments in (
        ["ca", "create"],
        ["cert", "create", "-server"],
        ["cert", "create", "-client"],
    ):
        subprocess.run([consul(), "tls", *arguments], cwd=keys, check=True, capture_output=True)
    server = RealConsul(
        keys / "server",
        {
            "ca_file": str(keys / "consul-agent-ca.pem"),
            "cert_file": str(keys / "dc1-server-consul-0.pem"),
            "key_file": str(keys / "dc1-server-consul-0-key.pem"),
            "verify_incoming": True,
            "acl": {"enabled": True, "default_policy": "deny", "tokens": {"master": MASTER}},
        },
    )
    yield server.start()
    server.stop()


def trusting(server: RealConsul, *, with_certificate: bool = True) -> ssl.SSLContext:
    keys = server.directory.parent
    context = ssl.create_default_context(cafile=str(keys / "consul-agent-ca.pem"))
    if with_certificate:
        name = keys / "dc1-client-consul-0"
        context.load_cert_chain(f"{name}.pem", f"{name}-key.pem")
    return context


async def test_with_a_certificate_and_a_token_a_partition_is_claimed(secured: RealConsul) -> None:
    address = f"localhost:{secured.https_port}"
    async with ConsulGroup("safe", address, token=MASTER, tls=trusting(secured)) as group:
        reader = await group.new_reader("127.0.0.1:1", "events", 1)
        await reader.commit(5)
        assert await reader.position() == 5


@pytest.mark.parametrize("token", [None, UNKNOWN])
async def test_without_the_token_consul_refuses_and_that_is_told(
    secured: RealConsul, token: str | None
) -> None:
    address = f"localhost:{secured.https_port}"
    async with ConsulGroup("safe", address, token=token, tls=trusting(secured)) as group:
        with pytest.raises(ConsulRefused, match="permission denied: 403"):
            await group.new_reader("127.0.0.1:1", "events", 1)


async def test_without_a_certificate_there_is_no_connection(secured: RealConsul) -> None:
    tls = trusting(secured, with_certificate=False)
    async with ConsulGroup("safe", f"localhost:{secured.https_port}", tls=tls) as group:
        with pytest.raises(ConsulUnavailable):
            await group.new_reader("127.0.0.1:1", "events", 1)
