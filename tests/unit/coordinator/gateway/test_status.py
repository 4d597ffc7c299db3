"""What a person sees of a gateway: brokers that are there or gone, and what waits for a journal."""

from __future__ import annotations

import asyncio

import msgspec

from groupkeeper.coordinator.gateway import status
from groupkeeper.coordinator.gateway.status import (
    BrokerStatus,
    WaitingTransaction,
    broker_statuses,
    journal_status,
)
from tests.helpers.gateway.journals import JournalSite, a_journal
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.unit.coordinator.gateway.test_gateway import Site, a_site


def brokers(site: Site) -> dict[int, BrokerStatus]:
    ports = site.gateway._record.ports
    return {each.id: each for each in broker_statuses(site.gateway, site.brokers.cluster, ports)}


@virtual_time
async def test_brokers_that_are_there_are_shown_with_their_ports() -> None:
    async with a_site(ports=range(9100, 9102)) as site:
        assert brokers(site) == {}
        site.taken = {9101}
        site.brokers.set(1, 2)
        await site.settle()
        site.gateway.targets[1].traffic.connections = 3
        shown = brokers(site)
        assert shown[1] == BrokerStatus(
            id=1,
            address="b1:9092",
            port=9100,
            problem="",
            is_up=True,
            connections=3,
            sent_bytes=0,
            received_bytes=0,
            seen_s=site.gateway.age_s,
        )
        assert shown[2].port is None
        assert "no port of upstream.ports" in shown[2].problem


@virtual_time
async def test_a_broker_that_is_gone_is_shown_with_its_port_and_since_when() -> None:
    async with a_site() as site:
        site.brokers.set(1, 2)
        await site.settle()
        await asyncio.sleep(100)
        site.brokers.set(1)
        await site.settle()
        await asyncio.sleep(7)
        gone = brokers(site)[2]
        assert (gone.address, gone.port) == ("", 9101)
        assert gone.problem == "it is not in the upstream's metadata"
        assert gone.seen_s is not None
        assert 7 <= gone.seen_s < 8


async def shown(site: JournalSite) -> status.JournalStatus:
    return await journal_status(site.journal, site.coordinator)


@virtual_time
async def test_open_transactions_are_shown_by_group_and_producer() -> None:
    async with a_journal() as site:
        empty = await shown(site)
        assert (empty.problem, empty.lost, empty.open, empty.silent_shards) == ("", {}, [], 0)
        assert empty.topic_id
        site.broker.add_producer(9)
        site.broker.add_producer(8)
        await site.commit(9, 10)
        await asyncio.sleep(5)
        await site.commit(9, 11)
        await site.commit(8, 12, group_id="other")
        found = await shown(site)
        assert [(each.group, each.producer_id, each.partitions) for each in found.open] == [
            ("g", 9, 1),
            ("other", 8, 1),
        ]
        assert found.open[0].since_ms < found.open[1].since_ms
        site.broker.end(9, commit=True)
        await site.stable_offset()
        later = await shown(site)
        assert [each.group for each in later.open] == ["other"]
        assert later.ended_transactions == 1


@virtual_time
async def test_many_open_transactions_are_shown_in_part(monkeypatch) -> None:
    monkeypatch.setattr(status, "MAX_SHOWN", 2)
    async with a_journal() as site:
        for producer_id in range(5):
            site.broker.add_producer(producer_id)
            await site.commit(producer_id, 1)
        found = await shown(site)
        assert [each.producer_id for each in found.open] == [0, 1]
        assert found.not_shown == 3


@virtual_time
async def test_a_lost_journal_is_shown_with_its_reason() -> None:
    async with a_journal() as site:
        site.broker.add_producer(9)
        await site.commit(9, 10)
        site.broker.delete_topic()
        await asyncio.sleep(60)
        found = await shown(site)
        assert list(found.lost) == [site.partition()]
        assert "was deleted" in found.lost[site.partition()]


@virtual_time
async def test_a_shard_whose_store_does_not_answer_is_counted_as_silent() -> None:
    async with a_journal() as site:
        site.broker.add_producer(9)
        gate = site.storage.hold_next_append()
        sent = site.send(9, 10, epoch=0)
        await asyncio.sleep(1)
        found = await shown(site)
        assert (found.open, found.silent_shards) == ([], 1)
        gate.open()
        await sent
        assert (await shown(site)).silent_shards == 0


def test_status_can_be_read_by_a_command_that_is_older() -> None:
    newer = b'{"group":"g","producer_id":1,"producer_epoch":2,"partitions":3,"since_ms":4,"new":5}'
    assert msgspec.json.decode(newer, type=WaitingTransaction) == WaitingTransaction(
        "g", 1, 2, 3, 4
    )
