from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.coordinator.gateway.dialing import DialError, dial
from groupkeeper.coordinator.gateway.security import (
    Login,
    Security,
    SecurityError,
    read_security,
)
from groupkeeper.coordinator.handlers.services import Endpoint
from tests.helpers.wire.loop_server import serving
from tests.helpers.wire.scripted_broker import ScriptedBroker

HANDSHAKE, AUTHENTICATE = 17, 36
PLAIN = Security(login=Login("PLAIN", "us", "secret"))
SCRAM = Security(login=Login("SCRAM-SHA-256", "us", "secret"))


class Collecting(asyncio.Protocol):
    """Remembers what happened to its connection."""

    def __init__(self) -> None:
        self.made: asyncio.BaseTransport | None = None
        self.received = bytearray()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


def handshake(error: int = 0) -> tuple[int, Callable[[], dict[str, Any]]]:
    return 1, lambda: {"error_code": error, "mechanisms": ["PLAIN", "OTHER"]}


def authenticate(
    error: int = 0, message: str | None = None, token: bytes = b"", lifetime: int = 0
) -> tuple[int, Callable[[], dict[str, Any]]]:
    return 1, lambda: {
        "error_code": error,
        "error_message": message,
        "auth_bytes": token,
        "session_lifetime": lifetime,
    }


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedBroker]]:
    made: list[ScriptedBroker] = []

    def make(**apis: Any) -> ScriptedBroker:
        keys = {"handshake": HANDSHAKE, "authenticate": AUTHENTICATE}
        made.append(ScriptedBroker({keys[name]: api for name, api in apis.items()}))
        return made[-1]

    yield make
    for broker in made:
        broker.close()


def at(broker: ScriptedBroker) -> Endpoint:
    return Endpoint("127.0.0.1", broker.port)


async def refusal(endpoint: Endpoint, security: Security, timeout_s: float = 30) -> str:
    protocol = Collecting()
    with pytest.raises(DialError) as caught:
        await dial(endpoint, security, protocol, timeout_s)
    assert protocol.made is None
    message = str(caught.value)
    assert message.startswith(f"{endpoint.host}:{endpoint.port}: ")
    return message.partition(": ")[2]


async def test_a_connection_in_plain_text_belongs_to_the_callers_protocol() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(2))

    async with serving(greet) as endpoint:
        protocol = Collecting()
        transport, session_ms = await dial(endpoint, Security(), protocol, 30)
        assert (protocol.made, session_ms) == (transport, 0)
        transport.write(b"hi")
        await protocol.lost.wait()
        assert protocol.received == b"hi"


async def test_a_login_comes_before_the_callers_first_byte(
    scripted: Callable[..., ScriptedBroker],
) -> None:
    broker = scripted(handshake=handshake(), authenticate=authenticate(lifetime=60_000))
    protocol = Collecting()
    transport, session_ms = await dial(at(broker), PLAIN, protocol, 30)
    assert broker.asked == [HANDSHAKE, AUTHENTICATE]
    assert (protocol.made, session_ms) == (transport, 60_000)
    transport.abort()
    await protocol.lost.wait()


async def test_a_mechanism_that_is_not_offered_is_named_with_those_that_are(
    scripted: Callable[..., ScriptedBroker],
) -> None:
    broker = scripted(handshake=handshake(33))
    reason = await refusal(at(broker), SCRAM)
    assert reason == "it does not offer SCRAM-SHA-256; it offers PLAIN, OTHER"


async def test_a_refused_login_gives_the_brokers_reason(
    scripted: Callable[..., ScriptedBroker],
) -> None:
    broker = scripted(handshake=handshake(), authenticate=authenticate(58, "Invalid username"))
    assert await refusal(at(broker), PLAIN) == "it refuses the login of 'us': Invalid username"


@pytest.mark.parametrize("count", ["1", "4095", "100001", "9999999999"])
async def test_too_few_and_too_many_iterations_are_refused_before_they_are_computed(
    scripted: Callable[..., ScriptedBroker], count: str
) -> None:
    token = f"r=nonce,s=c2FsdA==,i={count}".encode()
    broker = scripted(handshake=handshake(), authenticate=authenticate(token=token))
    assert f"asks for {count} iterations" in await refusal(at(broker), SCRAM)


@pytest.mark.parametrize("token", [b"", b"\xff", b"r=not ours,s=c2FsdA==,i=4096", b"r", b"i=4096"])
async def test_an_answer_that_is_not_of_scram_is_refused(
    scripted: Callable[..., ScriptedBroker], token: bytes
) -> None:
    broker = scripted(handshake=handshake(), authenticate=authenticate(token=token))
    assert "answer to the login is not valid" in await refusal(at(broker), SCRAM)


async def test_a_server_that_does_not_speak_kafka_is_refused() -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n")
        await reader.read()

    async with serving(shout) as endpoint:
        assert await refusal(endpoint, PLAIN) == "the server there does not speak Kafka"


async def test_bytes_after_the_answer_to_a_login_are_refused() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\0\0\4\0\0\0\1more")
        await reader.read()

    async with serving(answer) as endpoint:
        assert await refusal(endpoint, PLAIN) == "the server there does not speak Kafka"


async def test_a_server_that_closes_is_told_from_one_that_does_not_answer() -> None:
    async def close(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)

    async def keep_silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(close) as endpoint:
        assert "does it expect TLS" in await refusal(endpoint, PLAIN)
    async with serving(keep_silent) as endpoint:
        assert await refusal(endpoint, PLAIN, 0.2) == "no connection within 0.2 s"


async def test_nobody_there_is_one_line() -> None:
    async def hang_up(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        return

    async with serving(hang_up) as endpoint:
        pass
    assert "cannot connect" in await refusal(endpoint, Security())


def test_the_settings_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\nmore\n")
    security = read_security(
        tls=True, mechanism="PLAIN", user="us", password_file=str(tmp_path / "password")
    )
    assert security.tls is not None
    assert security.login == Login("PLAIN", "us", "secret")
    assert "secret" not in repr(security)
    assert read_security(tls=False) == Security()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"mechanism": "PLAIN", "user": "us"}, "upstream.password_file"),
        ({"mechanism": "PLAIN", "user": "us", "password_file": "/absent"}, "upstream.password_f"),
        ({"tls": True, "ca_file": "/absent"}, "upstream.ca_file"),
        ({"tls": True, "cert_file": "/absent"}, "upstream.cert_file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(SecurityError, match=told):
        read_security(**{"tls": False, **settings})
