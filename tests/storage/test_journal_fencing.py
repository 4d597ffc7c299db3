"""The end of a life beside an append of it: the append is stored before the next load, or never."""

from __future__ import annotations

import asyncio
import copy

import pytest
from structlog.testing import capture_logs

from groupkeeper.storage.backends.journal.driver import JournalDriver, SeqMoved
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.base import Batch, Lease, StorageError, StoreRefused
from groupkeeper.storage.event_log.sealing.sealer import FOR_EVER
from tests.helpers.core.records import commit
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.fake_driver import FakeDriver, FakeServer
from tests.helpers.storage.faulty_storage import Gate
from tests.helpers.storage.storage_owner import IDENTITY, SHARDS, Owner

TTL_MS = 2_000


class HeldCalls:
    """Holds calls of a driver at one point."""

    def __init__(self) -> None:
        self.gates: dict[tuple[str, bool], Gate] = {}
        self.failing: set[tuple[str, bool]] = set()

    def hold(self, call: str, *, is_done: bool = False) -> Gate:
        gate = self.gates[call, is_done] = Gate()
        return gate

    async def __call__(self, call: str, is_done: bool) -> None:
        await asyncio.sleep(0)
        if gate := self.gates.get((call, is_done)):
            await gate.wait()
        if (call, is_done) in self.failing:
            raise StorageError(f"{call} fails")


def a_storage(
    server: FakeServer,
    pause: HeldCalls | None = None,
    node_id: int = 1,
    retention_ms: int = FOR_EVER,
) -> JournalStorage:
    driver: JournalDriver = FakeDriver(server, pause or HeldCalls())
    now_ms = lambda: round(asyncio.get_running_loop().time() * 1000)  # noqa: E731
    return JournalStorage(
        driver,
        node_id=node_id,
        name=f"host:{node_id}",
        lease_ttl_ms=TTL_MS,
        retention_ms=retention_ms,
        timer_ms=now_ms,
    )


async def offset_after_load(owner: Owner) -> int | None:
    await owner.reload()
    found = owner.model.keys.get(("offset", 0, "g", "orders", 0))
    return None if found is None else found[0]


def leases_of(owner: Owner) -> list[Lease]:
    return [Lease(shard, "owner", owner.epoch) for shard in SHARDS]


def end_life(server: FakeServer) -> None:
    """End the only life that goes on, as an observer does."""
    (life,) = server.going_on()
    server.lives[life.life_id].is_over = True


@pytest.mark.parametrize("is_done", [False, True])
@virtual_time
async def test_a_life_that_ends_before_an_append_refuses_it_and_after_it_keeps_it(
    is_done: bool,
) -> None:
    server, pause = FakeServer(), HeldCalls()
    owner = await Owner(a_storage(server, pause)).start()
    await owner.append(0, [commit("g", 1)])
    gate = pause.hold("append", is_done=is_done)
    late = asyncio.ensure_future(owner.storage.append([owner.item(0, Batch([commit("g", 2)], []))]))
    await gate.reached.wait()
    end_life(server)
    gate.open()
    if is_done:
        assert not await late
    else:
        assert [*await late] == [0]
    assert await offset_after_load(owner) == (2 if is_done else 1)
    await owner.append(0, [commit("g", 3)])
    assert await offset_after_load(owner) == 3
    await owner.storage.close()


@virtual_time
async def test_an_append_in_doubt_ends_the_own_life_before_the_next_load() -> None:
    server, pause = FakeServer(), HeldCalls()
    owner = await Owner(a_storage(server, pause)).start()
    (life,) = server.going_on()
    pause.failing.add(("append", True))
    with pytest.raises(StorageError, match="append fails"):
        await owner.append(0, [commit("g", 2)])
    pause.failing.clear()
    with pytest.raises(StorageError, match="nobody knows whether the last append"):
        await owner.append(0, [commit("g", 3)])
    assert await offset_after_load(owner) == 2
    assert server.lives[life.life_id].is_freed
    assert [*await owner.storage.renew([])] == []
    await owner.storage.close()


@virtual_time
async def test_a_cancelled_append_is_stored_before_the_next_load_or_never() -> None:
    server, pause = FakeServer(), HeldCalls()
    owner = await Owner(a_storage(server, pause)).start()
    gate = pause.hold("append")
    late = asyncio.ensure_future(owner.storage.append([owner.item(0, Batch([commit("g", 2)], []))]))
    await gate.reached.wait()
    late.cancel()
    pause.gates.clear()
    assert await offset_after_load(owner) is None
    await owner.append(0, [commit("g", 3)])
    await owner.storage.close()


@virtual_time
async def test_a_second_node_is_refused_with_the_name_of_the_first() -> None:
    server = FakeServer()
    owner = await Owner(a_storage(server)).start()
    with pytest.raises(StoreRefused, match=r"in use by node 1 \(host:1\)"):
        await a_storage(server, node_id=2).open(IDENTITY)
    await owner.append(0, [commit("g", 1)])
    await owner.storage.close()


@virtual_time
async def test_after_a_kill_the_next_start_waits_for_a_ttl_and_loses_nothing() -> None:
    server, pause = FakeServer(), HeldCalls()
    killed = await Owner(a_storage(server, pause)).start()
    for offset in range(5):
        await killed.append(0, [commit("g", offset)])
    for call in ("beat", "fold"):
        pause.hold(call)  # nothing of it reaches the store any more
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    storage = a_storage(server, node_id=2)
    owner = await Owner(storage).start()
    assert TTL_MS <= (loop.time() - began_s) * 1000 <= 2 * TTL_MS
    assert await offset_after_load(owner) == 4
    assert killed.storage.read_time_left_ms() == 0
    pause.gates.clear()
    assert [*await killed.storage.append([killed.item(0, Batch([commit("g", 9)], []))])] == [0]
    await owner.storage.close()
    await killed.storage.close()


@virtual_time
async def test_a_start_that_folds_a_large_journal_is_not_taken_for_dead() -> None:
    server = FakeServer()
    killed = await Owner(a_storage(server)).start()
    await killed.append(0, [commit("g", 1)])
    end_life(server)
    pause = HeldCalls()
    pause.failing = {("beat", False)}
    fold = pause.hold("fold")
    starting = asyncio.ensure_future(Owner(a_storage(server, pause)).start())
    await fold.reached.wait()
    await asyncio.sleep(TTL_MS / 4_000)
    pause.failing.clear()  # a beat that failed is repeated
    for _ in range(3):
        with pytest.raises(StoreRefused):
            await a_storage(server, node_id=2).open(IDENTITY)
    fold.open()
    owner = await starting
    assert await offset_after_load(owner) == 1
    await owner.storage.close()
    await killed.storage.close()


@virtual_time
async def test_after_a_clean_stop_the_next_start_does_not_wait() -> None:
    server = FakeServer()
    owner = await Owner(a_storage(server)).start()
    await owner.append(0, [commit("g", 7)])
    await owner.storage.close()
    began_s = asyncio.get_running_loop().time()
    owner = await Owner(a_storage(server, node_id=2)).start()
    assert asyncio.get_running_loop().time() - began_s < TTL_MS / 4_000
    assert owner.model.keys["offset", 0, "g", "orders", 0][0] == 7
    await owner.storage.close()


@virtual_time
async def test_reads_stop_when_no_beat_succeeds_and_go_on_with_the_next() -> None:
    server, pause = FakeServer(), HeldCalls()
    owner = await Owner(a_storage(server, pause)).start()
    await asyncio.sleep(10)
    assert owner.storage.read_time_left_ms() > TTL_MS // 2
    pause.failing.add(("beat", False))
    await asyncio.sleep(TTL_MS / 1000)
    assert owner.storage.read_time_left_ms() == 0
    pause.failing.clear()
    await asyncio.sleep(TTL_MS / 2_000)
    assert owner.storage.read_time_left_ms() > 0
    await owner.append(0, [commit("g", 1)])
    await owner.storage.close()


@virtual_time
async def test_an_outage_writes_few_lines_about_beats() -> None:
    server, pause = FakeServer(), HeldCalls()
    owner = await Owner(a_storage(server, pause)).start()
    with capture_logs() as lines:
        for _ in range(2):
            pause.failing.add(("beat", False))
            await asyncio.sleep(120)
            pause.failing.clear()
            await asyncio.sleep(TTL_MS / 1000)
    told = [line["in_a_row"] for line in lines if line["event"] == "beat_failed"]
    once = [1, 2, 4, 8, 16, 32, 64, 128]
    assert told == [*once, *once]
    await owner.storage.close()


@virtual_time
async def test_a_late_answer_to_a_beat_of_the_old_life_does_not_end_the_new_one() -> None:
    server, pause = FakeServer(), HeldCalls()
    owner = await Owner(a_storage(server, pause)).start()
    gate = pause.hold("beat")
    await gate.reached.wait()
    pause.gates.clear()
    end_life(server)
    assert await offset_after_load(owner) is None
    (new_life,) = server.going_on()
    gate.open()
    await asyncio.sleep(TTL_MS / 1000)
    assert server.going_on()[0].life_id == new_life.life_id
    assert not owner.storage.lost(leases_of(owner))
    await owner.append(0, [commit("g", 1)])
    await owner.storage.close()


@virtual_time
async def test_a_lease_of_an_ended_life_is_lost_even_when_the_next_life_beats() -> None:
    server = FakeServer()
    owner = await Owner(a_storage(server)).start()
    old = leases_of(owner)
    assert not owner.storage.lost(old)
    end_life(server)
    await owner.reload()
    assert owner.storage.read_time_left_ms() > 0
    assert owner.storage.lost(old) == [lease.shard for lease in old]
    await owner.storage.close()


@pytest.mark.parametrize("is_found_by", ["a beat", "an append", "a new life"])
@virtual_time
async def test_a_store_that_lost_appends_is_loaded_and_its_next_log_says_so(
    is_found_by: str,
) -> None:
    server = FakeServer()
    owner = await Owner(a_storage(server)).start()
    await owner.append(0, [commit("g", 1)])
    before = copy.deepcopy(server)
    await owner.append(0, [commit("g", 2)])
    server.__dict__.update(before.__dict__)  # a standby that had only the first append
    if is_found_by == "a beat":
        await asyncio.sleep(TTL_MS / 1000)
        assert await owner.storage.renew(leases_of(owner))
        assert owner.storage.read_time_left_ms() == 0
    elif is_found_by == "an append":
        with pytest.raises(SeqMoved):
            await owner.append(0, [commit("g", 3)])
    else:
        end_life(server)
    assert await offset_after_load(owner) == 1
    assert owner.storage.stats()["set_backs"] == 1
    await owner.append(0, [commit("g", 4)])
    started = [event for event in server.events() if event["kind"] == "log_started"]
    assert [(e["previous_seq"], e["reason"]) for e in started] == [(1, "older_store")]
    assert await offset_after_load(owner) == 4
    assert owner.storage.stats()["set_backs"] == 1
    await owner.storage.close()


@virtual_time
async def test_what_is_sent_to_the_server_is_counted() -> None:
    owner = await Owner(a_storage(FakeServer())).start()
    await owner.append(0, [commit("g", 1)])
    await owner.append(0, [commit("g", 2)])
    stats = owner.storage.stats()
    assert stats["round_trips.append"] == 2
    assert stats["journal_bytes"] > 0
    assert stats["lease_time_left_s"] == TTL_MS * 0.9 / 1000
    await owner.storage.close()


@virtual_time
async def test_a_fold_of_an_ended_life_is_refused() -> None:
    """Whoever ended it has folded its journal, and may have written newer values since."""
    server, pause = FakeServer(), HeldCalls()
    owner = await Owner(a_storage(server, pause)).start()
    gate = pause.hold("fold")
    await owner.append(0, [commit("g", 1)])
    await gate.reached.wait()
    end_life(server)
    pause.gates.clear()
    other = await Owner(a_storage(server, node_id=2)).start()
    await other.append(0, [commit("g", 2)])
    await other.fold_all()
    gate.open()
    await asyncio.sleep(1)
    assert await offset_after_load(other) == 2
    await other.storage.close()
    await owner.storage.close()


@virtual_time
async def test_a_new_life_does_not_wait_for_a_fold_that_gets_no_answer() -> None:
    """The server was replaced, and nobody closes the old connections."""
    server, pause = FakeServer(), HeldCalls()
    owner = await Owner(a_storage(server, pause)).start()
    gate = pause.hold("fold")
    await owner.append(0, [commit("g", 1)])
    await gate.reached.wait()
    pause.gates.clear()
    pause.failing.add(("append", False))
    with pytest.raises(StorageError):
        await owner.append(0, [commit("g", 2)])
    pause.failing.clear()
    async with asyncio.timeout(10):
        assert await offset_after_load(owner) == 1
    await owner.append(0, [commit("g", 3)])
    await owner.fold_all()
    await owner.storage.close()


@virtual_time
async def test_an_unreadable_group_in_the_journal_of_an_ended_life_is_named() -> None:
    """Its changes are only in the journal, so the journal must stay until somebody mends it."""
    server = FakeServer()
    killed = await Owner(a_storage(server)).start()
    await killed.append(0, [commit("a/b", 1)])
    await killed.fold_all()
    await killed.append(0, [commit("a/b", 2)])
    end_life(server)
    (key,) = [key for key in server.values if key[2] == "a/b"]
    good, server.values[key] = server.values[key], b"{}"
    with pytest.raises(StorageError, match="the value of group 'a/b' cannot be read"):
        await Owner(a_storage(server)).start()
    server.values[key] = good
    owner = await Owner(a_storage(server)).start()
    assert owner.model.keys["offset", 0, "a/b", "orders", 0][0] == 2
    await owner.storage.close()
    await killed.storage.close()


@virtual_time
async def test_a_seq_that_went_back_is_an_error_and_then_a_load() -> None:
    """A standby without the newest commits was promoted."""
    server = FakeServer()
    owner = await Owner(a_storage(server)).start()
    await owner.append(0, [commit("g", 1)])
    await owner.fold_all()
    (life,) = server.going_on()
    stored = server.lives[life.life_id]
    stored.end = stored.end._replace(next_seq=1)
    with pytest.raises(StorageError, match="the journal ends with seq 0"):
        await owner.append(0, [commit("g", 2)])
    assert await offset_after_load(owner) == 1
    await owner.append(0, [commit("g", 3)])
    await owner.storage.close()


@virtual_time
async def test_a_fold_that_fails_is_tried_again_and_no_append_fails() -> None:
    server, pause = FakeServer(), HeldCalls()
    owner = await Owner(a_storage(server, pause)).start()
    for is_done in (False, True):
        pause.failing = {("fold", is_done)}
        for offset in range(3):
            await asyncio.sleep(1)
            await owner.append(0, [commit("g", offset)])
        assert owner.storage.stats()["unfolded"]
        assert not owner.storage.unfolded(), "an idle owner would try again at once"
    pause.failing.clear()
    failures = owner.storage.stats()["fold_failures"]
    await asyncio.sleep(1)
    await owner.fold_all()
    assert owner.storage.stats()["unfolded"] == 0
    assert owner.storage.stats()["fold_failures"] == failures > 0, "a counter fell"
    assert await offset_after_load(owner) == 2
    seqs = [event["seq"] for event in server.events()]
    assert seqs == [*range(1, 7)]
    await owner.storage.close()


@virtual_time
async def test_a_fold_succeeds_although_old_events_cannot_be_deleted() -> None:
    server, pause = FakeServer(), HeldCalls()
    owner = await Owner(a_storage(server, pause, retention_ms=60_000)).start()
    pause.failing = {("delete_events", False)}
    await owner.append(0, [commit("g", 1)])
    await owner.fold_all()
    await asyncio.sleep(61)
    await owner.append(0, [commit("g", 2)])
    with capture_logs() as logs:
        await owner.fold_all()
    assert [log["event"] for log in logs] == ["events_not_deleted"]
    assert not owner.storage.stats()["fold_failures"]
    await owner.storage.close()


@pytest.mark.parametrize("is_lost_by", ["an observer", "a standby"])
@virtual_time
async def test_leases_that_were_lost_before_their_answer_came_are_acquired_again(
    is_lost_by: str,
) -> None:
    """Nobody would notice that they are lost, and no shard would answer again."""
    server, pause = FakeServer(), HeldCalls()
    owner = await Owner(a_storage(server, pause)).start()
    before = copy.deepcopy(server)
    await owner.append(0, [commit("g", 1)])
    gate = pause.hold("acquire", is_done=True)
    late = asyncio.ensure_future(owner.storage.acquire(SHARDS, "owner"))
    await gate.reached.wait()
    if is_lost_by == "an observer":
        end_life(server)
    else:
        server.__dict__.update(before.__dict__)
    await asyncio.sleep(TTL_MS / 1000)
    assert owner.storage.read_time_left_ms() == 0
    pause.gates.clear()
    gate.open()
    with pytest.raises(StorageError, match="while shards were acquired"):
        await late
    assert await offset_after_load(owner) == (1 if is_lost_by == "an observer" else None)
    await owner.append(0, [commit("g", 2)])
    assert owner.storage.read_time_left_ms() > 0
    await owner.storage.close()


@virtual_time
async def test_an_append_that_ends_after_the_store_was_set_back_is_in_doubt() -> None:
    server, pause = FakeServer(), HeldCalls()
    owner = await Owner(a_storage(server, pause)).start()
    before = copy.deepcopy(server)
    await owner.append(0, [commit("g", 1)])
    gate = pause.hold("append", is_done=True)
    late = asyncio.ensure_future(owner.storage.append([owner.item(0, Batch([commit("g", 2)], []))]))
    await gate.reached.wait()
    server.__dict__.update(before.__dict__)
    await asyncio.sleep(TTL_MS / 1000)
    pause.gates.clear()
    gate.open()
    with pytest.raises(StorageError, match="during an append"):
        await late
    assert await offset_after_load(owner) is None
    await owner.storage.close()


@virtual_time
async def test_a_late_answer_to_an_append_of_the_old_life_does_not_end_the_new_one() -> None:
    server, pause = FakeServer(), HeldCalls()
    owner = await Owner(a_storage(server, pause)).start()
    gate = pause.hold("append")
    late = asyncio.ensure_future(owner.storage.append([owner.item(0, Batch([commit("g", 2)], []))]))
    await gate.reached.wait()
    assert await offset_after_load(owner) is None
    pause.gates.clear()
    gate.open()
    assert [*await late] == [0]
    assert not owner.storage.lost(leases_of(owner))
    await owner.append(0, [commit("g", 3)])
    assert await offset_after_load(owner) == 3
    await owner.storage.close()
