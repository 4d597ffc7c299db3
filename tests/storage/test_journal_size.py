"""The limits of a journal: appends wait while it is full."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from groupkeeper.storage.backends.journal import life_journal
from groupkeeper.storage.backends.journal.life_journal import MOST_FULL_WAIT_MS
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.journal.succession import PORTION_BYTES
from groupkeeper.storage.base import Batch, ShardId
from tests.helpers.core.records import commit
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.fake_driver import FakeDriver, FakeServer
from tests.helpers.storage.faulty_storage import Gate
from tests.helpers.storage.storage_owner import Owner

ENTRY_BYTES = 10_000
BIG = "x" * 6_000


class HeldFolds:
    """Holds the folds of a driver while there is a gate."""

    def __init__(self) -> None:
        self.gate: Gate | None = None
        self.folds = 0

    async def __call__(self, call: str, is_done: bool) -> None:
        await asyncio.sleep(0)
        if call == "fold" and not is_done:
            self.folds += 1
            if self.gate is not None:
                await self.gate.wait()


async def an_owner(server: FakeServer, held: HeldFolds, entry_bytes: int) -> Owner:
    driver = FakeDriver(server, held)
    driver.max_entry_bytes = entry_bytes
    now_ms = lambda: round(asyncio.get_running_loop().time() * 1000)  # noqa: E731
    storage = JournalStorage(driver, node_id=1, name="host:1", lease_ttl_ms=2_000, timer_ms=now_ms)
    return await Owner(storage).start()


def appending(
    owner: Owner, shard: ShardId, offset: int, metadata: str = ""
) -> asyncio.Task[object]:
    record = commit("g", offset, metadata=metadata)
    owner.model.apply_all(shard, [record])
    item = owner.item(shard, Batch([record], []))
    return asyncio.ensure_future(owner.storage.append([item]))  # type: ignore[arg-type]


async def append_beyond_the_limit(owner: Owner, held: HeldFolds) -> None:
    """Append while a fold does not end, and let it end."""
    gate = held.gate = Gate()
    for offset in range(1, 11):
        await appending(owner, 0, offset, BIG)
    held.gate = None
    gate.open()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("limit", ["bytes", "requests"])
@virtual_time
async def test_an_append_to_a_full_journal_waits_for_the_fold(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_bytes, metadata = (ENTRY_BYTES, BIG) if limit == "bytes" else (1_000_000, "")
    if limit == "requests":
        monkeypatch.setattr(life_journal, "MAX_JOURNAL_REQUESTS", 3)
    server, held = FakeServer(), HeldFolds()
    owner = await an_owner(server, held, entry_bytes)
    held.gate = Gate()
    await appending(owner, 0, 1, metadata)  # begins a fold
    await held.gate.reached.wait()
    done = 1
    while True:
        late = appending(owner, 0, done + 1, metadata)
        await turns()
        if not late.done():
            break
        done += 1
        assert done < 10, "no append waits"
    stats = owner.storage.stats()
    assert done >= 2
    if limit == "bytes":
        assert stats["journal_bytes"] <= 2 * ENTRY_BYTES < stats["journal_bytes"] + len(BIG)
    else:
        assert stats["unfolded"] == 3 + 1, "with the one that waits"
    gate, held.gate = held.gate, None
    gate.open()
    assert not await late
    await owner.fold_all()
    assert owner.storage.stats()["journal_bytes"] == 0
    assert (await owner.read()).keys == owner.model.keys
    await owner.storage.close()


@virtual_time
async def test_an_append_to_a_full_journal_does_not_fail_because_of_a_slow_fold() -> None:
    server, held = FakeServer(), HeldFolds()
    owner = await an_owner(server, held, ENTRY_BYTES)
    held.gate = Gate()
    await appending(owner, 0, 1, BIG)
    for offset in range(2, 6):
        async with asyncio.timeout(MOST_FULL_WAIT_MS / 1000 + 0.001):
            assert not await appending(owner, 0, offset, BIG)
    assert owner.storage.stats()["journal_bytes"] > 2 * ENTRY_BYTES
    gate, held.gate = held.gate, None
    gate.open()
    await owner.fold_all()
    assert owner.storage.stats()["journal_bytes"] == 0
    assert (await owner.read()).keys == owner.model.keys
    await owner.storage.close()


@virtual_time
async def test_a_journal_beyond_its_limit_leaves_in_portions() -> None:
    """Folds failed or were slow. The events of all entries would be too many for one call."""
    server, held = FakeServer(), HeldFolds()
    owner = await an_owner(server, held, ENTRY_BYTES)
    await append_beyond_the_limit(owner, held)
    left = []
    while owner.storage.unfolded():
        await owner.fold()
        left.append(owner.storage.stats()["journal_bytes"])
    steps = [before - after for before, after in itertools.pairwise(left)]
    assert left[-1] == 0
    assert len(BIG) < max(steps) <= 2 * ENTRY_BYTES
    assert [event["seq"] for event in server.event_log] == [*range(1, len(server.event_log) + 1)]
    assert (await owner.read()).keys == owner.model.keys
    await owner.storage.close()


@virtual_time
async def test_a_life_that_ends_with_a_journal_beyond_its_limit_loses_nothing() -> None:
    server, held = FakeServer(), HeldFolds()
    killed = await an_owner(server, held, ENTRY_BYTES)
    await append_beyond_the_limit(killed, held)
    await killed.fold()  # the value is saved, and only the oldest entries have left
    await killed.fold()
    (life,) = server.going_on()
    server.lives[life.life_id].is_over = True
    owner = await an_owner(server, HeldFolds(), ENTRY_BYTES)
    assert owner.model.keys["offset", 0, "g", "orders", 0][0] == 10
    seqs = [event["seq"] for event in server.events()]
    assert seqs == [*range(1, len(seqs) + 1)]
    await owner.storage.close()
    await killed.storage.close()


@virtual_time
async def test_a_journal_that_is_half_full_is_folded_at_once() -> None:
    """A small one is folded four times a second."""
    server, held = FakeServer(), HeldFolds()
    owner = await an_owner(server, held, ENTRY_BYTES)
    await appending(owner, 0, 1)
    await turns()
    assert held.folds == 1
    await appending(owner, 0, 2)
    await turns()
    assert held.folds == 1
    for offset in (3, 4):
        await appending(owner, 0, offset, BIG)
        await turns()
    assert held.folds == 2
    await owner.storage.close()


@virtual_time
async def test_who_takes_over_folds_large_entries_in_portions() -> None:
    """They are not in memory all at once."""
    server, held = FakeServer(), HeldFolds()
    killed = await an_owner(server, held, 16 * PORTION_BYTES)
    held.gate = Gate()
    for offset in range(1, 4):
        await appending(killed, 0, offset, "x" * PORTION_BYTES)
    (life,) = server.going_on()
    server.lives[life.life_id].is_over = True
    others = HeldFolds()
    owner = await an_owner(server, others, 16 * PORTION_BYTES)
    assert others.folds == 3
    assert owner.model.keys["offset", 0, "g", "orders", 0][0] == 3
    await owner.storage.close()
    held.gate.open()
    await killed.storage.close()
