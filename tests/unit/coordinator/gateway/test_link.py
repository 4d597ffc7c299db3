"""The connection of one client connection to a broker."""

from __future__ import annotations

import asyncio
import math
import socket
from typing import Any

import pytest

from groupkeeper.coordinator.gateway.link import BrokerLink, LinkTarget
from groupkeeper.coordinator.gateway.security import Login, Security
from groupkeeper.coordinator.handlers.services import Endpoint
from tests.helpers.wire.scripted_broker import ScriptedBroker

HANDSHAKE, AUTHENTICATE = 17, 36
PLAIN = Security(login=Login("PLAIN", "us", "secret"))


class Owner:
    """A client that only waits for its link."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.lost = asyncio.Event()

    def link_opened(self) -> None:
        self.opened.set()

    def link_received(self, data: bytes) -> None:
        pass

    def link_flows(self) -> None:
        pass

    def link_lost(self, error: str) -> None:
        self.lost.set()


def a_broker(lifetime_ms: int) -> ScriptedBroker:
    answers: dict[int, Any] = {
        HANDSHAKE: (1, lambda: {"error_code": 0, "mechanisms": ["PLAIN"]}),
        AUTHENTICATE: (
            1,
            lambda: {
                "error_code": 0,
                "error_message": None,
                "auth_bytes": b"",
                "session_lifetime": lifetime_ms,
            },
        ),
    }
    return ScriptedBroker(answers)


@pytest.mark.parametrize(("lifetime_ms", "share_s"), [(0, math.inf), (600_000, 480)])
async def test_a_link_is_over_before_its_session_ends(lifetime_ms: int, share_s: float) -> None:
    broker, owner = a_broker(lifetime_ms), Owner()
    try:
        target = LinkTarget(1, Endpoint("127.0.0.1", broker.port), PLAIN, 30)
        link = BrokerLink(target, owner)
        await owner.opened.wait()
        await link._task
        now_s = asyncio.get_running_loop().time()
        assert link._ends_s <= now_s + share_s
        assert math.isinf(link._ends_s) == math.isinf(share_s)
        assert not link.is_over
        link._ends_s = now_s
        assert link.is_over
        link.close()
    finally:
        broker.close()


async def test_the_kernel_notices_a_broker_that_is_gone_without_a_word() -> None:
    """Otherwise the two descriptors of an idle client connection would be taken for ever."""
    broker, owner = a_broker(0), Owner()
    try:
        target = LinkTarget(1, Endpoint("127.0.0.1", broker.port), Security(), 30)
        link = BrokerLink(target, owner)
        await owner.opened.wait()
        assert link._transport is not None
        sock = link._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 120_000
        link.close()
    finally:
        broker.close()
