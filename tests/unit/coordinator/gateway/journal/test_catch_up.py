"""An OffsetFetch of an older client reads what its last transaction committed:
docs/design.md#journal.

Such clients (aiokafka, Java before 2.5) do not require stable offsets. In Kafka the offsets of a
transaction are visible before its producer may begin the next one.
"""

from __future__ import annotations

import asyncio

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.offsets import fetch as core_fetch
from groupkeeper.coordinator.core.requests.offsets import FetchTopic, OffsetFetch
from groupkeeper.coordinator.gateway.gate import GroupGate
from groupkeeper.coordinator.gateway.journal.catch_up import LIMIT_S
from groupkeeper.coordinator.gateway.journal.journal import REFRESH_S
from groupkeeper.coordinator.gateway.observed_topics import ObservedTopics
from tests.helpers.gateway.journals import JournalSite, a_journal
from tests.helpers.runtime.coordinator import RecordingTicket
from tests.helpers.runtime.virtual_loop import turns, virtual_time

P = 9
FIRST: list[FetchTopic] = [("orders", "", [0])]


def gate_of(site: JournalSite) -> GroupGate:
    topics = site.coordinator.topics
    assert topics is not None
    gate = GroupGate(site.coordinator, lambda: topics.image, ObservedTopics(topics))
    gate.catch_up = site.journal.catch_up
    return gate


def fetch(
    gate: GroupGate, topics: list[FetchTopic] | None = FIRST, *, group_id: str = "g"
) -> RecordingTicket:
    ticket = RecordingTicket()
    gate.submit(OffsetFetch(group_id, topics, False, False), ticket)
    return ticket


@virtual_time
async def test_the_offset_of_an_ended_transaction_is_waited_for() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        site.broker.hides_records = True
        site.broker.end(P, commit=True)
        ticket = fetch(gate_of(site))
        await asyncio.sleep(1)
        assert ticket.is_waiting
        site.broker.hides_records = False
        await asyncio.sleep(1)
        assert ticket.offsets() == {("orders", 0): 10}


@virtual_time
async def test_a_transaction_that_is_open_is_not_waited_for() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        site.broker.end(P, commit=True)
        await site.stable_offset()
        await site.commit(P, 20)
        ticket = fetch(gate_of(site))
        await asyncio.sleep(1)
        assert ticket.offsets() == {("orders", 0): 10}


@virtual_time
async def test_an_offset_that_cannot_be_known_is_not_answered() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        site.broker.is_down = True
        ticket = fetch(gate_of(site))
        await asyncio.sleep(LIMIT_S - 1)
        assert ticket.is_waiting
        await asyncio.sleep(2)
        assert ticket.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@virtual_time
async def test_nobody_waits_for_a_journal_that_is_lost() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        site.broker.delete_topic()
        await asyncio.sleep(2 * REFRESH_S)
        assert site.journal.lost()
        assert fetch(gate_of(site)).is_waiting
        ticket = fetch(gate_of(site))
        await asyncio.sleep(1)
        assert ticket.offsets() == {("orders", 0): -1}


@virtual_time
async def test_all_offsets_of_a_large_group_wait_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is made in slices, so its rows must not be looked at for this."""
    monkeypatch.setattr(core_fetch, "LARGE_BYTES", 0)
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        site.broker.end(P, commit=True)
        await site.stable_offset()
        await site.commit(P, 20)
        site.broker.hides_records = True
        site.broker.end(P, commit=True)
        ticket = fetch(gate_of(site), None)
        await asyncio.sleep(1)
        assert ticket.is_waiting
        site.broker.hides_records = False
        await asyncio.sleep(1)
        assert ticket.offsets() == {("orders", 0): 20}


@virtual_time
async def test_after_a_start_the_journal_is_waited_for() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        await site.die()
        site.broker.end(P, commit=True)
        await site.begin(waits=False)
        ticket = fetch(gate_of(site))
        await asyncio.sleep(LIMIT_S)
        assert ticket.offsets() == {("orders", 0): 10}


@virtual_time
async def test_fetches_that_wait_share_two_looks_at_the_end() -> None:
    """One that runs may have asked before the transaction ended, so later ones begin another."""
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        gate = gate_of(site)
        early = fetch(gate)
        await turns(3)
        site.broker.end(P, commit=True)
        late = [fetch(gate) for _ in range(20)]
        await asyncio.sleep(LIMIT_S)
        assert not early.is_waiting
        assert [each.offsets() for each in late] == [{("orders", 0): 10}] * 20


@virtual_time
async def test_a_group_without_transactions_is_answered_at_once() -> None:
    async with a_journal() as site:
        gate = gate_of(site)
        assert fetch(gate).offsets() == {("orders", 0): -1}
        assert fetch(gate, None).offsets() == {}


@virtual_time
async def test_a_fetch_after_the_stop_is_refused_as_any_other() -> None:
    async with a_journal() as site:
        gate = gate_of(site)
        await site.die()
        assert fetch(gate).error is ErrorCode.NOT_COORDINATOR
        await site.begin()
