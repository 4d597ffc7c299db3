"""The store in topics of a real Kafka that asks for SASL, TLS and rights."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.main import app
from groupkeeper.storage.base import OffsetStorage, StorageError, StoreRefused
from groupkeeper.storage.open import open_storage
from groupkeeper.storage.tools.by_url import check_store
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.core.records import commit
from tests.helpers.storage.kafka_access import (
    CERTIFIED,
    PASSWORD,
    STRANGER,
    USER,
    KafkaAccess,
    give_rights,
    make_user,
)
from tests.helpers.storage.sealed_store import until
from tests.helpers.storage.storage_owner import IDENTITY, Owner

pytestmark = pytest.mark.kafka_topic

WAYS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "a certificate"]


@pytest.fixture(autouse=True)
async def connections() -> AsyncIterator[None]:
    """Wait at the end until all sockets are closed: TLS waits for an answer of the broker. The loop
    of a test ends earlier than that of a daemon.
    """
    yield
    loop: Any = asyncio.get_running_loop()
    await until(lambda: all(each._sock is None for each in loop._transports.values()))


@pytest.fixture(scope="module")
def users(kafka: RealKafka) -> None:
    make_user(kafka.bootstrap)


def url_of(access: KafkaAccess, way: str, topic: str, user: str = USER) -> str:
    ca = f"ca_file={quote(str(access.folder / 'ca.pem'))}"
    if way != "a certificate":
        return f"kafka://{user}@127.0.0.1:{access.sasl_port}/{topic}?sasl={way}&{ca}"
    own = "&".join(
        f"{name}_file={quote(str(access.folder / file))}"
        for name, file in (("cert", "client.crt"), ("key", "client.key"))
    )
    return f"kafka://127.0.0.1:{access.tls_port}/{topic}?{ca}&{own}"


def a_store(url: str, password: str = PASSWORD) -> OffsetStorage:
    secret = password if "@" in url else None
    return open_storage(url, append_timeout_ms=5_000, lease_ttl_ms=1_000, password=secret)


@pytest.mark.parametrize("way", WAYS)
async def test_a_user_with_the_rights_of_the_docs_stores_and_loads(
    kafka: RealKafka, kafka_access: KafkaAccess, users: None, way: str
) -> None:
    topic = f"s{uuid.uuid4().hex}"
    await asyncio.to_thread(give_rights, kafka.bootstrap, topic, USER, CERTIFIED)
    url = url_of(kafka_access, way, topic)
    owner = await Owner(a_store(url)).start()
    await owner.append(0, [commit("g", 1, partitions=3)])
    await owner.reload()  # fences its earlier producers
    await owner.append(0, [commit("g", 2)])
    found = [event async for event in owner.storage.history("g")]  # type: ignore[attr-defined]
    assert found == []  # "g" belongs to another shard; its topic can be read
    await owner.storage.close()
    again = await Owner(a_store(url)).start()
    assert again.model.keys == owner.model.keys
    await again.storage.close()
    report = await check_store(
        url,
        IDENTITY,
        append_timeout_ms=5_000,
        lease_ttl_ms=2_000,
        password=PASSWORD if "@" in url else None,
        measures_writes=True,
    )
    assert (report.offsets, report.problems) == (3, [])
    assert report.write_ms is not None


@pytest.mark.parametrize("way", WAYS[:3])
async def test_a_wrong_password_is_refused_and_never_printed(
    kafka_access: KafkaAccess, users: None, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "another secret"
    storage = a_store(url_of(kafka_access, way, "topic"), password=wrong)
    with pytest.raises(StorageError, match="Authentication") as refusal:
        await storage.open(IDENTITY)
    assert wrong not in str(refusal.value) + caplog.text
    assert "\n" not in str(refusal.value)


async def test_a_command_logs_in_with_the_password_of_a_file(
    kafka: RealKafka, kafka_access: KafkaAccess, users: None, tmp_path: Path
) -> None:
    topic = f"s{uuid.uuid4().hex}"
    await asyncio.to_thread(give_rights, kafka.bootstrap, topic, USER, CERTIFIED)
    url = url_of(kafka_access, "SCRAM-SHA-512", topic)
    owner = await Owner(a_store(url)).start()
    await owner.append(0, [commit("g", 1)])
    await owner.storage.close()
    file = tmp_path / "password"
    for secret, exit_code in ((PASSWORD, 0), ("another secret", 1)):
        file.write_text(f"{secret}\n")
        asked = ["log", "tail", "--store", url, "--password-file", str(file)]
        result = await asyncio.to_thread(CliRunner().invoke, app, asked)
        assert result.exit_code == exit_code, result.output
        assert ("orders 0=1" in result.output) is (exit_code == 0)
        assert secret not in result.output


async def test_a_server_of_another_authority_is_refused(
    kafka_access: KafkaAccess, users: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = KafkaAccess(tmp_path_factory.mktemp("other"))
    url = url_of(kafka_access, "PLAIN", "topic").replace(
        str(kafka_access.folder), str(other.folder)
    )
    with pytest.raises(StorageError, match="CERTIFICATE_VERIFY_FAILED"):
        await a_store(url).open(IDENTITY)


async def test_a_user_without_rights_is_refused_with_the_reason(
    kafka: RealKafka, kafka_access: KafkaAccess, users: None
) -> None:
    topic = f"s{uuid.uuid4().hex}"
    url = url_of(kafka_access, "PLAIN", topic, STRANGER)
    words = f"AuthorizationFailed.*give the user Read.*topics that begin with '{topic}'"
    with pytest.raises(StoreRefused, match=words):
        await a_store(url).open(IDENTITY)
