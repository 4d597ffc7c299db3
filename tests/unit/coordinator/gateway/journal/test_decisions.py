"""What a person decides about pending offsets of a lost journal."""

from __future__ import annotations

import asyncio

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.gateway.journal.decisions import decide, lost_shards
from tests.helpers.gateway.journals import JournalSite, a_journal, groups_of_one_partition
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.faulty_storage import fail, lie

NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
OLD, NEW = groups_of_one_partition(2)


async def lose_two(site: JournalSite) -> None:
    """Two groups of one shard have pending offsets, and the topic is deleted."""
    for producer_id, group_id in ((1, OLD), (2, NEW)):
        site.broker.add_producer(producer_id)
        assert await site.commit(producer_id, 10 * producer_id, group_id=group_id) is NONE
    await site.die()
    site.broker.delete_topic()
    await site.begin()


@virtual_time
async def test_lost_shards_have_what_is_pending_and_why() -> None:
    async with a_journal() as site:
        await lose_two(site)
        (lost,) = await lost_shards(site.journal, site.coordinator)
        assert lost.shard_id == site.partition(OLD)
        assert "was deleted and created again" in lost.reason
        shown = {(p.group_id, p.producer_id, p.topics[0].partitions[0][1]) for p in lost.pending}
        assert shown == {(OLD, 1, 10), (NEW, 2, 20)}


@virtual_time
async def test_one_group_is_committed_and_another_one_aborted() -> None:
    async with a_journal() as site:
        await lose_two(site)
        (lost,) = await lost_shards(site.journal, site.coordinator)
        by_group = {each.group_id: each for each in lost.pending}
        await decide(site.coordinator, lost.shard_id, [by_group[OLD]], commit=True)
        assert await site.offset(OLD) == 10
        assert await site.offset(NEW) is UNSTABLE
        await asyncio.sleep(30)
        assert site.journal.lost(), "something is still pending"
        await decide(site.coordinator, lost.shard_id, [by_group[NEW]], commit=False)
        assert await site.offset(NEW) == -1
        await asyncio.sleep(30)
        assert site.journal.lost() == {}


@virtual_time
async def test_more_than_one_request_can_take_are_decided() -> None:
    async with a_journal() as site:
        site.broker.add_producer(1)
        for offset in range(450):
            assert await site.commit(1, offset, group_id=OLD) is NONE
        await site.die()
        site.broker.delete_topic()
        await site.begin()
        (lost,) = await lost_shards(site.journal, site.coordinator)
        await decide(site.coordinator, lost.shard_id, lost.pending, commit=True)
        assert await site.stable_offset(OLD) == 449
        await site.restart()
        assert site.journal.lost() == {}


@virtual_time
async def test_a_disk_that_is_full_in_the_middle_only_delays_a_decision() -> None:
    async with a_journal() as site:
        site.broker.add_producer(1)
        for offset in range(450):
            assert await site.commit(1, offset, group_id=OLD) is NONE
        await site.die()
        site.broker.delete_topic()
        await site.begin()
        (lost,) = await lost_shards(site.journal, site.coordinator)
        # The first part is written. The second one fails, and then may or may not be written.
        site.storage.script("append", None, fail(), fail(), lie())
        await decide(site.coordinator, lost.shard_id, lost.pending, commit=True)
        assert await site.stable_offset(OLD) == 449
        await site.restart()
        assert await site.stable_offset(OLD) == 449
        assert site.journal.lost() == {}


@virtual_time
async def test_two_persons_who_decide_at_once_decide_everything_once() -> None:
    async with a_journal() as site:
        await lose_two(site)
        (lost,) = await lost_shards(site.journal, site.coordinator)
        await asyncio.gather(
            decide(site.coordinator, lost.shard_id, lost.pending, commit=True),
            decide(site.coordinator, lost.shard_id, lost.pending, commit=False),
        )
        assert [await site.offset(OLD), await site.offset(NEW)] == [10, 20], "the first one counts"
        assert await site.pending(OLD) == 0


@virtual_time
async def test_what_the_journal_can_decide_is_nobodys_decision() -> None:
    async with a_journal() as site:
        site.broker.add_producer(1)
        site.broker.add_producer(2)
        await site.commit(1, 10, group_id=OLD)
        site.broker.cut(site.partition(OLD))
        await site.commit(2, 20, group_id=NEW)
        await site.die()
        site.broker.end(2, commit=True)
        await site.begin()
        (lost,) = await lost_shards(site.journal, site.coordinator)
        assert [each.group_id for each in lost.pending] == [OLD]
        assert await site.offset(NEW) == 20


@virtual_time
async def test_an_open_transaction_in_the_rest_of_the_journal_is_nobodys_decision() -> None:
    async with a_journal() as site:
        site.broker.add_producer(1)
        site.broker.add_producer(2)
        await site.commit(1, 10, group_id=OLD)
        site.broker.cut(site.partition(OLD))
        await site.commit(2, 20, group_id=NEW)
        await site.restart()
        (lost,) = await lost_shards(site.journal, site.coordinator)
        assert ([each.group_id for each in lost.pending], lost.open) == ([OLD], 1)
        await decide(site.coordinator, lost.shard_id, lost.pending, commit=True)
        assert await site.offset(OLD) == 10
        assert await site.offset(NEW) is UNSTABLE
        site.broker.end(2, commit=False)
        assert await site.stable_offset(NEW) == -1, "the producer has aborted it"


@virtual_time
async def test_nothing_is_lost_while_a_transaction_is_only_open() -> None:
    async with a_journal() as site:
        site.broker.add_producer(1)
        await site.commit(1, 10)
        await site.restart()
        assert await lost_shards(site.journal, site.coordinator) == []
        assert await site.offset() is UNSTABLE
