"""Clients that log in at an upstream with TLS, through us: with passwords and with tokens.

Each client also works on for longer than one session (``connections.max.reauth.ms``).
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from typing import Any

import aiokafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AclOperation

from tests.gateway.test_identity import failure_of_produce, principals
from tests.helpers.clients.guarded_kafka import JAAS, PASSWORDS, SecuredKafka
from tests.helpers.daemon.gateways import a_gateway
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.gateway.copiers import java_program
from tests.helpers.wire.raw_client import RawClient

pytestmark = [pytest.mark.gateway, pytest.mark.slow, pytest.mark.java]

LIMIT_S = 90
SESSION_MS = 2_500
RECORDS = 20
SCRAM, OAUTH = "SCRAM-SHA-512", "OAUTHBEARER"
MECHANISMS = ["PLAIN", SCRAM, OAUTH]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """Alice may use ``orders``, and we may use ``payroll``."""
    topics = {"orders": 2, "payroll": 1}
    kafka = SecuredKafka(tmp_path_factory.mktemp("secured"), topics, SESSION_MS)
    try:
        kafka.start()
        kafka.allow("gate", "*", AclOperation.DESCRIBE)
        for user, topic in (("gate", "payroll"), ("alice", "orders")):
            kafka.allow(user, topic, AclOperation.READ, AclOperation.WRITE)
        yield kafka
    finally:
        kafka.broker.stop()


@pytest.fixture(scope="module")
def gateway(
    secured: SecuredKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Groupkeeper]:
    directory = tmp_path_factory.mktemp("gateway")
    (directory / "password").write_text(PASSWORDS["gate"] + "\n")
    settings = {
        "upstream.identity": "client",
        "upstream.tls": True,
        "upstream.ca_file": str(secured.certificates / "ca.pem"),
        "upstream.sasl": SCRAM,
        "upstream.user": "gate",
        "upstream.password_file": str(directory / "password"),
    }
    daemon = a_gateway(directory, secured.bootstrap, settings)
    try:
        yield daemon.start()
    finally:
        daemon.stop()


def a_group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


def is_named(gateway: Groupkeeper, group: str) -> bool:
    """True if the event log names alice for each event of a client."""
    named = principals(gateway, group)
    return named["commit"] == named["member_join"] == {"User:alice"}


# --- librdkafka -----------------------------------------------------------------------------------


def librdkafka_login(gateway: Groupkeeper, mechanism: str, user: str = "alice") -> dict[str, Any]:
    login = {
        "bootstrap.servers": gateway.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
    }
    if mechanism == OAUTH:
        token = {"enable.sasl.oauthbearer.unsecure.jwt": True}
        return login | token | {"sasl.oauthbearer.config": f"principal={user}"}
    return login | {"sasl.username": user, "sasl.password": PASSWORDS[user]}


def read(consumer: Consumer, wanted: set[bytes], limit_s: float = LIMIT_S) -> set[bytes]:
    """Read until all wanted values have been seen."""
    missing, end = set(wanted), time.monotonic() + limit_s
    while missing and time.monotonic() < end:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            missing.discard(message.value())
    return missing


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_works_on_for_longer_than_a_session(
    gateway: Groupkeeper, mechanism: str
) -> None:
    group = a_group()
    values = [f"{group} {n}".encode() for n in range(RECORDS)]
    producer = Producer(librdkafka_login(gateway, mechanism))
    for value in values[1:]:
        producer.produce("orders", value=value)
    assert producer.flush(LIMIT_S) == 0
    own = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(librdkafka_login(gateway, mechanism) | own)
    consumer.subscribe(["orders"])
    assert read(consumer, {*values[1:]}) == set()
    read(consumer, {b"nothing"}, 2 * SESSION_MS / 1000)
    producer.produce("orders", value=values[0])
    assert producer.flush(LIMIT_S) == 0
    assert read(consumer, {values[0]}) == set()
    consumer.commit(asynchronous=False)
    consumer.close()
    assert failure_of_produce(producer, "payroll") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert is_named(gateway, group)


# --- Java -----------------------------------------------------------------------------------------


def java_login(mechanism: str) -> str:
    """The module and the options of a login, for ``sasl.jaas.config``."""
    if mechanism == OAUTH:
        module, options = "oauthbearer.OAuthBearer", 'unsecuredLoginStringClaim_sub="alice"'
    else:
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        options = f'username="alice" password="{PASSWORDS["alice"]}"'
    return f"{JAAS}.{module}LoginModule required {options};"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_works_on_for_longer_than_a_session(gateway: Groupkeeper, mechanism: str) -> None:
    group = a_group()
    login = [gateway.bootstrap, mechanism, java_login(mechanism)]
    work = ["orders", "payroll", group, str(RECORDS), str(2 * SESSION_MS)]
    ran = subprocess.run(
        [*java_program("LoggedIn"), *login, *work],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    lines = ran.stdout.splitlines()
    wanted = [f"read {RECORDS}", f"later {RECORDS + 1}", "refused TopicAuthorizationException"]
    assert lines == wanted, ran.stderr[-3000:]
    assert is_named(gateway, group)


# --- aiokafka -------------------------------------------------------------------------------------


class Token(AbstractTokenProvider):
    """A web token without a signature."""

    def __init__(self, claims: dict[str, Any]) -> None:
        parts = [json.dumps(each).encode() for each in ({"alg": "none"}, claims)]
        encoded = [base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts]
        self._token = ".".join([*encoded, ""])

    async def token(self) -> str:
        return self._token


def claims(lasts_s: float = 3600) -> dict[str, Any]:
    return {"sub": "alice", "iat": time.time(), "exp": time.time() + lasts_s}


async def test_aiokafka_logs_in_with_a_token(gateway: Groupkeeper) -> None:
    group = a_group()
    login: Any = {
        "bootstrap_servers": gateway.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": OAUTH,
        "sasl_oauth_token_provider": Token(claims()),
    }
    wanted = {f"{group} {n}".encode() for n in range(RECORDS)}
    async with aiokafka.AIOKafkaProducer(**login) as producer:
        for value in wanted:
            await producer.send_and_wait("orders", value)
    settings: Any = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = aiokafka.AIOKafkaConsumer("orders", **login, **settings, group_id=group)
    async with consumer, asyncio.timeout(LIMIT_S):
        while wanted:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                wanted -= {record.value for record in records}
        await consumer.commit()
    assert is_named(gateway, group)


# --- Tokens that the upstream refuses, compared with the broker itself ----------------------------


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


@pytest.mark.parametrize("lasts_s", [-60.0, 3600.0])
async def test_a_token_counts_only_if_the_upstream_accepts_it(
    gateway: Groupkeeper, lasts_s: float
) -> None:
    """An expired token gets an answer that is no success, and then the connection ends."""
    token = await Token(claims(lasts_s)).token()
    with RawClient(gateway.port) as raw:
        assert raw.call("sasl_handshake", 1, mechanism=OAUTH)["error_code"] == 0
        answer = raw.call("sasl_authenticate", 1, auth_bytes=bearer(token))
        assert answer["error_code"] == 0  # Kafka tells a bad token in the bytes, as RFC 7628 says
        said = bytes(answer["auth_bytes"])
        if lasts_s > 0:
            assert said == b""
            assert raw.call("list_groups", 0)["error_code"] == 0
        else:
            assert b"invalid_token" in said
            with pytest.raises(ConnectionError):
                raw.call("list_groups", 0)
