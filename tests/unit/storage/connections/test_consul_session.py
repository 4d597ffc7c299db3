"""When a session is renewed, and from when on it counts as lost; Consul is a fake."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from groupkeeper.storage.connections.consul import ConsulClient
from groupkeeper.storage.connections.consul_errors import ConsulRefused, ConsulUnavailable
from groupkeeper.storage.connections.consul_session import ConsulSession
from tests.helpers.runtime.virtual_loop import VirtualLoop, virtual_time


class FakeConsul:
    """Answers renewals as it is told; counts them."""

    def __init__(self) -> None:
        self.answer: bool | Exception = True
        self.takes_s = 0.0
        self.renewed: list[float] = []
        self.destroyed: list[str] = []

    async def create_session(self, *_settings: Any) -> str:
        await asyncio.sleep(self.takes_s)
        return "session-1"

    async def renew_session(self, _session: str, _timeout_s: float) -> bool:
        await asyncio.sleep(self.takes_s)
        self.renewed.append(asyncio.get_running_loop().time())
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def destroy_session(self, session: str) -> None:
        self.destroyed.append(session)


class Held:
    """A session of ten seconds, and why it was lost."""

    def __init__(self) -> None:
        self.consul = FakeConsul()
        self.loop = asyncio.get_running_loop()
        self.lost: list[tuple[float, str]] = []
        client = cast("ConsulClient", self.consul)
        self.session = ConsulSession(client, 10_000, 1_000, self.loop.time)

    async def open(self) -> ConsulSession:
        began_s = self.loop.time()
        await self.session.open("x", lambda why: self.lost.append((self.loop.time(), why)))
        self.began_s = began_s
        return self.session


@virtual_time
async def test_it_is_renewed_three_times_a_ttl_and_destroyed_at_the_end():
    held = Held()
    session = await held.open()
    await asyncio.sleep(30.5)
    assert len(held.consul.renewed) == 9
    assert session.is_good
    await session.close()
    assert held.consul.destroyed == ["session-1"]
    assert (session.is_good, held.lost) == (False, [])


@virtual_time
async def test_it_is_good_until_a_ttl_after_the_last_renewal_was_sent():
    held = Held()
    session = await held.open()
    await asyncio.sleep(5)  # renewed after 3.33 s
    held.consul.answer = ConsulUnavailable("away")
    await asyncio.sleep(8.2)
    assert session.is_good
    await asyncio.sleep(0.2)
    assert not session.is_good
    ((at_s, why),) = held.lost
    assert 13.3 < at_s - held.began_s < 13.5
    assert why == "Consul did not answer for 10000 ms"
    await session.close()
    assert held.consul.destroyed == []


@virtual_time
async def test_it_goes_on_when_consul_answers_in_time():
    held = Held()
    session = await held.open()
    held.consul.answer = ConsulUnavailable("away")
    await asyncio.sleep(9)
    held.consul.answer = True
    await asyncio.sleep(30)
    assert session.is_good
    await session.close()


@virtual_time
async def test_what_the_answer_took_does_not_count():
    held = Held()
    held.consul.takes_s = 3
    session = await held.open()
    held.consul.answer = ConsulUnavailable("away")
    await asyncio.sleep(6.9)
    assert session.is_good
    await asyncio.sleep(0.2)
    assert not session.is_good
    await session.close()


@virtual_time
async def test_a_late_answer_to_a_renewal_counts_from_when_it_was_sent():
    held = Held()
    session = await held.open()
    held.consul.takes_s = 3
    await asyncio.sleep(6.5)  # sent after 3.33 s, answered after 6.33 s
    assert len(held.consul.renewed) == 1
    held.consul.answer = ConsulUnavailable("away")
    await asyncio.sleep(6.7)
    assert session.is_good
    await asyncio.sleep(0.2)
    assert not session.is_good
    await session.close()


@virtual_time
async def test_a_process_that_was_stopped_knows_at_once_that_it_is_lost():
    held = Held()
    session = await held.open()
    loop = held.loop
    assert isinstance(loop, VirtualLoop)
    loop.advance(11)
    assert not session.is_good  # before any timer ran
    await session.close()


@virtual_time
async def test_a_session_that_consul_ended_or_refuses_is_lost_with_the_reason():
    for answer, reason in ((False, "ended"), (ConsulRefused("no"), "refused to renew it: no")):
        held = Held()
        session = await held.open()
        held.consul.answer = answer
        await asyncio.sleep(4)
        assert [reason in why for _, why in held.lost] == [True]
        await session.close()


@virtual_time
async def test_a_doubt_is_settled_at_once():
    held = Held()
    session = await held.open()
    held.consul.answer = False
    session.doubt()
    await asyncio.sleep(0.1)
    assert session.lost_because == "Consul ended the session"
    await session.close()
