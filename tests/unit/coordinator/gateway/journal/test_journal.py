"""The journal of transactions: docs/design.md#journal."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.records import PendingEnded
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.gateway.journal import journal as journal_module
from groupkeeper.coordinator.gateway.journal import shard as journal_shard
from groupkeeper.coordinator.gateway.journal.records import encode_batch
from groupkeeper.protocol.record_batches import Sender
from groupkeeper.storage.base import Batch, ShardAppend
from tests.helpers.core.shard_driver import CLIENT
from tests.helpers.gateway.journal_broker import JournalBroker
from tests.helpers.gateway.journals import (
    SHARDS,
    JournalSite,
    a_journal,
    error_of,
    groups_of_one_partition,
)
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage, Gate, fail, slow

NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
P = 9


# --- what becomes of offsets ---------------------------------------------------------------------


@virtual_time
async def test_offset_counts_when_the_marker_of_its_transaction_is_read() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        assert await site.commit(P, 10) is NONE
        assert await site.offset() is UNSTABLE
        site.broker.end(P, commit=True)
        assert await site.stable_offset() == 10
        assert await site.pending() == 0
        assert (site.journal.open_transactions(), site.journal.ended_transactions()) == (0, 1)


@virtual_time
async def test_lag_is_what_is_not_read_yet() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        assert site.journal.lag() == 0
        site.broker.hides_records = True
        site.broker.end(P, commit=True)
        await asyncio.sleep(2)
        assert site.journal.lag() == 1
        assert site.journal.open_transactions() == 1
        site.broker.hides_records = False
        assert await site.stable_offset() == 10
        assert site.journal.lag() == 0


@virtual_time
async def test_offset_of_an_aborted_transaction_has_no_effect() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        site.broker.end(P, commit=False)
        assert await site.stable_offset() == -1


@virtual_time
async def test_many_transactions_of_both_versions_are_numbered_as_the_broker_wants() -> None:
    """In version 1 the epoch stays, so the numbers go on; in version 2 each epoch begins at 0."""
    async with a_journal() as site:
        for producer_id, version in ((1, 3), (2, 4), (3, 5)):
            site.broker.add_producer(producer_id)
            for number in range(5):
                if version < 5:
                    site.broker.add_partition(producer_id, site.partition())
                assert await site.commit(producer_id, number, version=version) is NONE
                site.broker.end(producer_id, commit=True, bumps=version == 5)
                assert await site.stable_offset() == number
        assert site.broker.produced == [
            *((10, n) for n in range(5)),
            *((11, n) for n in range(5)),
            *((12, 0) for _ in range(5)),
        ]


@virtual_time
async def test_two_commits_of_one_transaction_follow_each_other() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        both = [site.send(P, offset, epoch=0) for offset in (1, 2)]
        assert [error_of(await each) for each in both] == [NONE, NONE]
        assert [sequence for _, sequence in site.broker.produced] == [0, 1]
        site.broker.end(P, commit=True)
        assert await site.stable_offset() == 2


@virtual_time
async def test_marker_that_is_written_twice_does_not_end_the_next_transaction() -> None:
    """Kafka 4.3.1 accepts a late second COMMIT of one transaction while the next one is open."""
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        site.broker.end(P, commit=True, markers=2)
        assert await site.stable_offset() == 10
        await site.commit(P, 20)
        site.broker.end(P, commit=False)
        assert await site.stable_offset() == 10


@virtual_time
async def test_a_transaction_ends_in_all_of_its_groups() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        groups = [f"g{number}" for number in range(12)]
        for group_id in groups:
            assert await site.commit(P, 5, group_id=group_id) is NONE
        site.broker.end(P, commit=True)
        assert [await site.stable_offset(group_id) for group_id in groups] == [5] * 12


@virtual_time
async def test_record_of_another_producer_says_nothing_about_the_offsets_whose_id_it_has() -> None:
    """Whoever may write to the topic can write any id, but only as its own producer."""
    async with a_journal() as site:
        forger = 66
        number = site.partition()
        site.broker.add_producer(P)
        site.broker.add_producer(forger)
        assert await site.commit(P, 10) is NONE
        site.broker.write(number, forger, "p1")
        site.broker.end(forger, commit=True)
        await asyncio.sleep(2 * journal_module.SWEEP_S)
        assert await site.offset() is UNSTABLE
        site.broker.end(P, commit=False)
        assert await site.stable_offset() == -1


@virtual_time
async def test_record_of_another_producer_acknowledges_nothing() -> None:
    async with a_journal() as site:
        forger = 66
        site.broker.add_producer(P)
        site.broker.add_producer(forger)
        site.broker.write(site.partition(), forger, "p1")
        site.broker.faults += ["dropped"] * 100
        assert await site.commit(P, 10) is ErrorCode.COORDINATOR_NOT_AVAILABLE


# --- errors of the upstream -------------------------------------------------------------------


@virtual_time
async def test_old_epoch_is_fenced_and_leaves_nothing_pending() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        site.broker.add_producer(P)
        assert await site.commit(P, 10, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await site.offset() == -1
        assert await site.pending() == 0


@pytest.mark.parametrize(
    ("version", "error"),
    [(0, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_partition_that_is_not_in_the_transaction_is_refused(version, error) -> None:
    @virtual_time
    async def run() -> None:
        async with a_journal() as site:
            site.broker.add_producer(P)
            assert await site.commit(P, 10, version=version) is error
            assert await site.pending() == 0

    run()


@virtual_time
async def test_error_of_the_journal_is_none_of_the_clients() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        site.broker.faults += [10]  # MESSAGE_TOO_LARGE
        assert await site.commit(P, 10) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("fault", ["lost", "dropped", 6, 7, 19, 51])
def test_attempt_that_failed_is_repeated_and_written_once(fault) -> None:
    @virtual_time
    async def run() -> None:
        async with a_journal() as site:
            site.broker.add_producer(P)
            site.broker.faults += [fault, fault]
            assert await site.commit(P, 10) is NONE
            assert len(site.broker.log(site.partition()).batches) == 1
            site.broker.end(P, commit=True)
            assert await site.stable_offset() == 10

    run()


@virtual_time
async def test_attempt_that_arrives_late_counts() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        site.broker.faults += ["late", *["dropped"] * 20]
        assert await site.commit(P, 10) is NONE
        assert len(site.broker.log(site.partition()).batches) == 1


@virtual_time
async def test_after_a_marker_no_attempt_is_repeated() -> None:
    """In transaction version 1 the next transaction may have the same epoch."""
    async with a_journal() as site:
        site.broker.add_producer(P)
        site.broker.add_partition(P, site.partition())
        await site.commit(P, 5, version=3)
        site.broker.faults += ["dropped"] * 4
        late = site.send(P, 10, version=3, epoch=0)
        await asyncio.sleep(0.01)
        site.broker.end(P, commit=False, bumps=False)
        site.broker.add_partition(P, site.partition())  # the next transaction
        assert error_of(await late) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(5)
        site.broker.end(P, commit=True, bumps=False)
        assert await site.stable_offset() == -1


@virtual_time
async def test_client_is_told_to_try_again_while_the_broker_is_down() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        site.broker.is_down = True
        assert await site.commit(P, 10) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await site.offset() is UNSTABLE, "nobody knows yet"
        site.broker.is_down = False
        assert await site.commit(P, 11) is NONE
        site.broker.end(P, commit=True)
        assert await site.stable_offset() == 11


@virtual_time
async def test_outage_is_logged_once_a_minute() -> None:
    async with a_journal() as site:
        site.broker.is_down = True
        with capture_logs() as lines:
            await asyncio.sleep(150)
        said = [each for each in lines if each["event"] == "journal_leaders_unknown"]
        assert len(said) in (2, 3)


@virtual_time
async def test_what_the_group_refuses_is_not_written() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        assert await site.commit(P, 10, group_id="") is ErrorCode.INVALID_GROUP_ID
        assert site.broker.produced == []
        assert site.journal.in_flight == 0


# --- restarts -----------------------------------------------------------------------------------


@virtual_time
async def test_transaction_that_ends_while_nobody_reads_counts_after_the_restart() -> None:
    async with a_journal() as site:
        site.broker.add_producer(1)
        site.broker.add_producer(2)
        await site.commit(1, 10, group_id="a")
        await site.commit(2, 20, group_id="b")
        await site.die()
        site.broker.end(1, commit=True)
        site.broker.end(2, commit=False)
        await site.begin()
        assert await site.stable_offset("a") == 10
        assert await site.stable_offset("b") == -1


@virtual_time
async def test_open_transaction_survives_a_restart_and_goes_on() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        site.broker.add_partition(P, site.partition())
        await site.commit(P, 10, version=4)
        await site.restart()
        assert await site.offset() is UNSTABLE
        assert await site.commit(P, 11, version=4) is NONE
        assert [sequence for _, sequence in site.broker.produced] == [0, 1]
        site.broker.end(P, commit=True, bumps=False)
        assert await site.stable_offset() == 11


@virtual_time
async def test_position_does_not_pass_an_open_transaction() -> None:
    async with a_journal() as site:
        site.broker.add_producer(1)
        site.broker.add_producer(2)
        slow, busy = groups_of_one_partition(2)
        await site.commit(1, 10, group_id=slow)
        for offset in range(20, 25):
            await site.commit(2, offset, group_id=busy)
            site.broker.end(2, commit=True)
        assert await site.stable_offset(busy) == 24
        await site.restart()
        site.broker.end(1, commit=True)
        assert await site.stable_offset(slow) == 10
        assert await site.pending(slow) == 0


@virtual_time
async def test_records_that_belong_to_no_commit_are_not_remembered(monkeypatch) -> None:
    monkeypatch.setattr(journal_shard, "MAX_RECORDS", 10)
    async with a_journal() as site:
        number = site.partition()
        site.broker.add_producer(1)
        log = site.broker.log(number)
        for each in range(40):
            log.add(encode_batch(f"forged-{each}", "g", Sender(2, 0), each, 1))
            if not each % 10:
                await site.commit(1, each)
        log.add(encode_batch("x" * 100_000, "g", Sender(2, 0), 40, 1))
        await site.journal.settle()
        await turns(50)
        partition = site.journal.shards.by_id[number].partition
        assert partition.records < 24, "four of a commit, and at most twice as many as are allowed"
        assert all(partition.has(1, f"p{each}") for each in range(1, 5))
        site.broker.end(1, commit=True)
        assert await site.stable_offset() == 30
        assert partition.has(1, "p1") is False
        await site.restart()
        assert await site.stable_offset() == 30


@virtual_time
async def test_transaction_that_arrived_first_does_not_replace_later_ones() -> None:
    async with a_journal() as site:
        site.broker.add_producer(1)
        site.broker.add_producer(2)
        await site.commit(1, 10)
        await site.commit(2, 20)
        site.broker.end(2, commit=True)
        site.broker.end(1, commit=True)
        assert await site.stable_offset() == 20


@virtual_time
async def test_pending_offset_that_was_never_written_is_dropped_after_a_restart() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        site.broker.is_down = True
        site.send(P, 10, epoch=0)
        await asyncio.sleep(1)
        assert await site.pending() == 1
        await site.die()
        site.broker.is_down = False
        await site.begin()
        assert await site.stable_offset() == -1
        assert await site.pending() == 0


@virtual_time
async def test_partition_without_a_leader_does_not_keep_pending_offsets_of_others() -> None:
    groups = {shard_of(name, SHARDS): name for name in map("group-{}".format, range(50))}
    async with a_journal() as site:
        site.broker.is_down = True
        for number, group_id in groups.items():
            site.broker.add_producer(number)
            site.send(number, 10, group_id=group_id, epoch=0)
        await asyncio.sleep(1)
        await site.die()
        site.broker.is_down = False
        site.broker.leaderless = {0, 2}
        await site.begin()
        await asyncio.sleep(30)
        assert [await site.pending(groups[number]) for number in range(SHARDS)] == [1, 0, 1, 0]
        site.broker.leaderless = set()
        await asyncio.sleep(60)
        assert [await site.pending(groups[number]) for number in range(SHARDS)] == [0, 0, 0, 0]


@virtual_time
async def test_record_that_arrives_after_the_restart_does_not_hide_another_one() -> None:
    """The new process has asked for the sequence numbers before a record of the old one arrives.

    Its first record then has a number that the broker has already, and is not written.
    """
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 5)
        site.broker.faults += ["late"]
        site.send(P, 10, epoch=0)
        await asyncio.sleep(0.1)
        await site.die()
        await site.begin()
        site.broker.faults += [51] * 6  # the numbers are asked for, and used later
        assert await site.commit(P, 20) is NONE
        site.broker.end(P, commit=True)
        assert await site.stable_offset() == 20
        assert await site.pending() == 0


@virtual_time
async def test_commit_whose_offsets_another_process_has_dropped_is_not_acknowledged() -> None:
    """The other process takes over the store, and drops the offsets before they are written."""
    async with a_journal() as site:
        assert isinstance(site.storage, FaultyStorage)
        site.broker.add_producer(P)
        site.broker.faults += ["dropped"] * 4
        late = site.send(P, 10, epoch=0)
        await asyncio.sleep(0.1)
        number = site.partition()
        (lease,) = site.storage.inner.take_over([number], "thief").values()
        swept = ShardAppend(number, lease.epoch, [Batch([PendingEnded("p1")], [])], lambda _: None)
        assert not await site.storage.inner.append([swept])
        assert error_of(await late) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@virtual_time
async def test_shard_that_is_loaded_again_loses_nothing() -> None:
    async with a_journal() as site:
        assert isinstance(site.storage, FaultyStorage)
        site.broker.add_producer(P)
        await site.commit(P, 10)
        site.storage.script("append", fail())
        site.broker.end(P, commit=True)
        assert await site.stable_offset() == 10


@virtual_time
async def test_pending_offset_whose_append_failed_and_succeeded_is_dropped() -> None:
    """The client was refused, but the store has the offset."""
    async with a_journal() as site:
        assert isinstance(site.storage, FaultyStorage)
        site.broker.add_producer(P)
        await site.commit(P, 1)
        site.broker.end(P, commit=True)
        await site.stable_offset()
        fault = fail()
        fault.stores = True
        site.storage.script("append", fault)
        assert await site.commit(P, 10) is not NONE
        await asyncio.sleep(2 * journal_module.SWEEP_S)
        assert (await site.pending(), await site.offset()) == (0, 1)


@virtual_time
async def test_offsets_that_are_being_written_are_not_swept() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        site.broker.faults += ["dropped"] * 60
        late = site.send(P, 10, epoch=0)
        await asyncio.sleep(3 * journal_module.SWEEP_S)
        assert await site.pending() == 1
        assert error_of(await late) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(60)
        site.broker.end(P, commit=True)
        assert await site.stable_offset() == 10, "it was written in the end"


@virtual_time
async def test_offsets_that_come_after_a_load_are_not_swept_before_they_are_written() -> None:
    """The sweep waits while a shard loads, and its first answer has offsets of later commits."""
    (group_id,) = groups_of_one_partition(1)  # the first shard that is swept
    async with a_journal() as site:
        assert isinstance(site.storage, FaultyStorage)
        site.broker.add_producer(P)
        load = Gate()
        site.storage.script("append", fail())
        site.storage.script("load", slow(load))
        refused = site.send(P, 5, group_id=group_id, epoch=0)  # the shards are loaded again
        await load.reached.wait()
        await asyncio.sleep(1.5 * journal_module.SWEEP_S)
        assert error_of(await refused) is not NONE
        site.broker.faults += ["dropped"] * 8
        load.open()
        while error := await site.commit(P, 10, group_id=group_id):
            assert error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await asyncio.sleep(0.01)
        site.broker.end(P, commit=True)
        assert await site.stable_offset(group_id) == 10


# --- the topic ----------------------------------------------------------------------------------


@virtual_time
async def test_compacted_topic_is_refused_until_it_is_changed() -> None:
    site = JournalSite(JournalBroker(SHARDS), FaultyStorage())
    site.broker.policy = "compact"
    await site.begin(waits=False)
    await asyncio.sleep(5)
    assert "cleanup.policy=compact" in site.journal.problem
    site.broker.add_producer(P)
    assert await site.commit(P, 1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    site.broker.policy = "delete"
    await asyncio.sleep(5)
    assert await site.commit(P, 1) is NONE
    await site.die()


@virtual_time
async def test_topic_that_compresses_records_is_refused_until_it_is_changed() -> None:
    site = JournalSite(JournalBroker(SHARDS), FaultyStorage())
    site.broker.compression = "gzip"
    await site.begin(waits=False)
    await asyncio.sleep(5)
    assert "compression.type=gzip" in site.journal.problem
    site.broker.compression = "uncompressed"
    await asyncio.sleep(5)
    assert site.journal.problem == ""
    await site.die()


@virtual_time
async def test_topic_with_another_number_of_partitions_is_refused() -> None:
    site = JournalSite(JournalBroker(SHARDS), FaultyStorage())
    site.broker.partitions = SHARDS + 1
    await site.broker._create(5, [type("T", (), {"num_partitions": SHARDS + 1})])
    await site.begin(waits=False)
    await asyncio.sleep(5)
    assert "5 partitions, and the store has 4 shards" in site.journal.problem
    await site.die()


# --- a lost journal -----------------------------------------------------------------------------


@virtual_time
async def test_deleted_topic_stops_shards_with_pending_offsets_until_a_person_decides() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        site.broker.delete_topic()
        with capture_logs() as lines:
            await asyncio.sleep(60)
        assert set(site.journal.lost()) == {site.partition()}
        assert await site.commit(P, 11) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await site.offset() is UNSTABLE
        told = [each for each in lines if each["event"] in ("journal_lost", "journal_goes_on")]
        assert [(each["event"], each["shards"]) for each in told] == [
            ("journal_lost", SHARDS),
            ("journal_goes_on", SHARDS - 1),
        ]
        assert "was deleted" in told[0]["reason"]


@virtual_time
async def test_other_shards_go_on_with_a_new_topic() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        lost, other = "g", next(each for each in "abcdef" if site.partition(each) != 3)
        assert site.partition(lost) == 3
        await site.commit(P, 10)
        site.broker.delete_topic()
        await asyncio.sleep(60)
        site.broker.add_producer(P)
        assert await site.commit(P, 20, group_id=other) is NONE
        site.broker.end(P, commit=True)
        assert await site.stable_offset(other) == 20
        assert await site.pending(lost) == 1


@virtual_time
async def test_shard_goes_on_once_a_person_has_decided() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        site.broker.delete_topic()
        await asyncio.sleep(60)
        await site.end_by_hand(commit=True)
        assert await site.offset() == 10
        await asyncio.sleep(2 * journal_module.GO_ON_EVERY_S)
        assert site.journal.lost() == {}
        site.broker.add_producer(P)
        assert await site.commit(P, 20) is NONE
        await site.restart()
        assert site.journal.lost() == {}
        site.broker.end(P, commit=True)
        assert await site.stable_offset() == 20


@virtual_time
async def test_topic_that_was_created_again_is_another_journal() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        await site.die()
        site.broker.topic_id = type(site.broker.topic_id)(int=2)
        await site.begin()
        assert set(site.journal.lost()) == {site.partition()}
        assert "was deleted and created again" in site.journal.lost()[site.partition()]
        site.broker.end(P, commit=True)  # a marker of another journal decides nothing
        await asyncio.sleep(60)
        assert await site.offset() is UNSTABLE


@virtual_time
async def test_topic_that_one_broker_did_not_know_is_read_on() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        logs, site.broker.logs = site.broker.logs, None
        await asyncio.sleep(3)
        assert site.journal.lost()
        site.broker.logs = logs
        site.broker.end(P, commit=True)
        assert await site.stable_offset() == 10
        assert site.journal.lost() == {}


@virtual_time
async def test_journal_that_is_cut_above_an_open_transaction_is_lost() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        await site.die()
        site.broker.end(P, commit=True)
        site.broker.cut(site.partition())
        for _ in range(2):  # a restart does not forget it
            await site.begin()
            await asyncio.sleep(30)
            assert "removed before they were read" in site.journal.lost()[site.partition()]
            assert await site.offset() is UNSTABLE
            assert await site.commit(P, 11) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            await site.die()
        await site.begin()
        await site.end_by_hand(commit=False)
        await asyncio.sleep(30)
        assert site.journal.lost() == {}
        assert await site.commit(P, 12) is NONE


@virtual_time
async def test_marker_after_a_cut_does_not_decide_about_records_before_it() -> None:
    """The marker of the first transaction was removed. That of the next one is another marker."""
    async with a_journal() as site:
        site.broker.add_producer(P)
        site.broker.add_partition(P, site.partition())
        await site.commit(P, 10, version=4)
        await site.die()
        site.broker.end(P, commit=False, bumps=False)
        site.broker.cut(site.partition())
        site.broker.add_partition(P, site.partition())
        site.broker.end(P, commit=True, bumps=False)
        await site.begin()
        await asyncio.sleep(30)
        assert await site.offset() is UNSTABLE


@virtual_time
async def test_what_is_left_of_a_cut_journal_still_decides() -> None:
    async with a_journal() as site:
        old, new = groups_of_one_partition(2)
        number = site.partition(old)
        site.broker.add_producer(1)
        site.broker.add_producer(2)
        await site.commit(1, 10, group_id=old)
        site.broker.cut(number)
        await site.commit(2, 20, group_id=new)
        await site.restart()
        await asyncio.sleep(30)
        assert set(site.journal.lost()) == {number}
        site.broker.end(2, commit=True)
        assert await site.stable_offset(new) == 20
        assert await site.offset(old) is UNSTABLE
        await site.restart()
        await asyncio.sleep(30)
        assert await site.offset(old) is UNSTABLE, "the position has not passed the cut"


@virtual_time
async def test_cut_while_a_record_is_written_ends_its_writer() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        site.broker.hides_records = True
        reading = site.send(P, 10, epoch=0)
        await asyncio.sleep(0.5)
        assert site.broker.produced
        site.broker.cut(site.partition())
        assert error_of(await reading) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        site.broker.hides_records = False
        await asyncio.sleep(60)
        assert site.journal.lost() == {}
        assert await site.pending() == 0


@virtual_time
async def test_records_that_retention_removes_after_they_were_read_are_not_lost() -> None:
    """The position in the store lags behind what was read, and the log is empty after 7 days."""
    async with a_journal() as site:
        site.broker.add_producer(P)
        site.broker.add_producer(1)
        for _ in range(5):  # transactions of others, without offsets
            site.broker.add_partition(1, site.partition())
            site.broker.end(1, commit=True)
        await asyncio.sleep(10)
        site.broker.cut(site.partition())
        await asyncio.sleep(60)
        assert site.journal.lost() == {}, "an empty log whose start is our position"
        assert await site.commit(P, 10) is NONE
        await site.restart()
        await asyncio.sleep(60)
        assert site.journal.lost() == {}, "its record is after the start"
        site.broker.end(P, commit=True)
        assert await site.stable_offset() == 10
        await site.restart()
        assert await site.commit(P, 20) is NONE


@virtual_time
async def test_journal_whose_end_is_cut_is_lost_if_something_is_pending() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        del site.broker.log(site.partition()).batches[:]
        await asyncio.sleep(30)
        assert "its end is lost" in site.journal.lost()[site.partition()]
        assert await site.offset() is UNSTABLE


@virtual_time
async def test_journal_that_is_cut_while_nothing_is_pending_goes_on() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        site.broker.end(P, commit=True)
        await site.stable_offset()
        await site.die()
        site.broker.add_partition(P, site.partition())
        site.broker.end(P, commit=False)  # a marker that nobody needs
        site.broker.cut(site.partition())
        await site.begin()
        await asyncio.sleep(5)
        assert site.journal.lost() == {}
        assert await site.commit(P, 20) is NONE
        site.broker.end(P, commit=True)
        assert await site.stable_offset() == 20


@virtual_time
async def test_writers_end_when_their_partition_is_lost() -> None:
    """One waits until its record is read, and one for the answer about sequence numbers."""
    async with a_journal() as site:
        site.broker.add_producer(P)
        site.broker.hides_records = True
        reading = site.send(P, 10, epoch=0)
        await asyncio.sleep(0.5)
        assert site.broker.produced
        site.broker.delete_topic()
        await asyncio.sleep(40)
        assert error_of(await reading) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert site.journal.in_flight == 0


@virtual_time
async def test_questions_about_a_lost_partition_end() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        site.broker.empty = {61}
        site.send(P, 10, epoch=0)
        await asyncio.sleep(0.5)
        site.broker.delete_topic()
        await asyncio.sleep(40)
        assert site.journal.in_flight == 0


@virtual_time
async def test_journal_opens_when_the_leaders_of_a_new_topic_are_elected() -> None:
    site = JournalSite(JournalBroker(SHARDS), FaultyStorage())
    site.broker.leaderless = {1, 2}
    await site.begin(waits=False)
    await asyncio.sleep(10)
    assert site.journal.problem
    site.broker.leaderless = set()
    await asyncio.sleep(10)
    assert site.journal.problem == ""
    await site.die()


@virtual_time
async def test_damaged_partition_is_logged_once_a_minute() -> None:
    async with a_journal() as site:
        site.broker.log(1).add(b"\0" * 100)
        with capture_logs() as lines:
            await asyncio.sleep(150)
        told = [each for each in lines if each["event"] == "journal_unreadable"]
        assert len(told) in (2, 3)


@virtual_time
async def test_deleted_group_has_no_offsets_after_the_marker() -> None:
    async with a_journal() as site:
        site.broker.add_producer(P)
        await site.commit(P, 10)
        assert await site.ask(DeleteGroup("g", CLIENT)) is NONE
        site.broker.end(P, commit=True)
        await asyncio.sleep(2)
        assert await site.offset() == -1


# --- faults of brokers and of our own ---------------------------------------------------------


@pytest.mark.parametrize("api_key", [0, 2, 3, 19, 32, 61])
def test_answer_of_another_shape_ends_nothing(api_key: int) -> None:
    @virtual_time
    async def run() -> None:
        site = JournalSite(JournalBroker(SHARDS), FaultyStorage())
        site.broker.empty = {api_key}
        await site.begin(waits=False)
        await asyncio.sleep(5)
        site.broker.add_producer(P)
        assert await site.commit(P, 10) is not NONE
        site.broker.empty = set()
        await asyncio.sleep(100)
        assert await site.commit(P, 11) is NONE
        site.broker.empty = {api_key}
        await asyncio.sleep(60)
        site.broker.empty = set()
        site.broker.end(P, commit=True)
        assert await site.stable_offset() == 11
        await site.die()

    run()


@virtual_time
async def test_task_that_fails_is_a_problem_until_it_has_succeeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_journal() as site:
        find = site.journal._finder.find

        async def broken() -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(site.journal._finder, "find", broken)
        with capture_logs() as lines:
            await asyncio.sleep(journal_module.REFRESH_S + 0.5)
            for _ in range(200):
                assert site.journal.problem == journal_module.FAILED
                await asyncio.sleep(0.1)
        assert len([each for each in lines if each["event"] == "journal_failed"]) == 1
        monkeypatch.setattr(site.journal._finder, "find", find)
        await asyncio.sleep(3)
        assert site.journal.problem == ""
        site.broker.add_producer(P)
        assert await site.commit(P, 10) is NONE
        site.broker.end(P, commit=True)
        assert await site.stable_offset() == 10
