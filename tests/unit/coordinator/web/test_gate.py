"""The time limits of an HTTP connection, without a socket and in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.server import ServerState

from groupkeeper.coordinator.web.gate import (
    REQUEST_TIMEOUT,
    RESPONSE_TIMEOUT,
    Gate,
    GatedProtocol,
    behind,
)
from groupkeeper.coordinator.web.pages import make_pages
from groupkeeper.coordinator.web.reports import Reports
from groupkeeper.coordinator.web.server import make_server
from tests.helpers.runtime.virtual_loop import turns, virtual_time

LIMIT_S = 10.0
HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
REQUEST = HEAD + b"\r\n"


class FakeTransport:
    """Keeps what is written, and says whether it was aborted."""

    def __init__(self) -> None:
        self.written = b""
        self.is_aborted = False

    def get_extra_info(self, name: str) -> Any:
        return {"peername": ("192.0.2.7", 40_000), "sockname": ("192.0.2.1", 9308)}.get(name)

    def is_closing(self) -> bool:
        return self.is_aborted

    def write(self, data: bytes) -> None:
        self.written += data

    def resume_reading(self) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True


class Peer:
    """A connection of the HTTP port, from the side of its peer."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        gate = Gate(8, LIMIT_S, lambda reason, _: self.refused.append(reason))

        async def metrics() -> bytes:
            return b"up 1\n"

        pages = make_pages(Reports(metrics=metrics, not_ready=lambda: None))
        config = make_server(pages, gate).config
        make_protocol = cast("type[GatedProtocol]", behind(gate))
        self.protocol = make_protocol(config, ServerState(), {})
        self.transport = FakeTransport()
        self.protocol.connection_made(cast("asyncio.Transport", self.transport))

    async def is_closed_after(self, seconds: float) -> bool:
        await asyncio.sleep(seconds)
        return self.transport.is_aborted

    async def send(self, data: bytes) -> None:
        self.protocol.data_received(data)
        await turns(20)  # the page is made


@virtual_time
async def test_the_first_byte_has_a_time_limit() -> None:
    peer = Peer()
    assert not await peer.is_closed_after(LIMIT_S - 0.1)
    assert await peer.is_closed_after(0.2)
    assert peer.refused == [REQUEST_TIMEOUT]


@virtual_time
async def test_a_head_has_the_time_limit_of_its_first_byte() -> None:
    peer = Peer()
    for byte in HEAD:
        assert not await peer.is_closed_after(LIMIT_S / len(HEAD) * 0.9)
        await peer.send(bytes([byte]))
    assert await peer.is_closed_after(LIMIT_S * 0.11)
    assert peer.refused == [REQUEST_TIMEOUT]


@virtual_time
async def test_a_later_head_has_a_time_limit_and_the_wait_for_it_has_none() -> None:
    peer = Peer()
    await peer.send(REQUEST)
    assert peer.transport.written.endswith(b"ok\n")
    assert not await peer.is_closed_after(LIMIT_S * 3)
    await peer.send(HEAD)
    assert not await peer.is_closed_after(LIMIT_S - 0.1)
    assert await peer.is_closed_after(0.2)
    assert peer.refused == [REQUEST_TIMEOUT]


@virtual_time
async def test_an_answer_that_is_not_read_has_a_time_limit() -> None:
    peer = Peer()
    await peer.send(REQUEST)
    peer.protocol.pause_writing()  # the transport has more of the answer than it may have
    assert not await peer.is_closed_after(LIMIT_S - 0.1)
    assert await peer.is_closed_after(0.2)
    assert peer.refused == [RESPONSE_TIMEOUT]
