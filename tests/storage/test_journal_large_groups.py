"""Large groups in a store that several processes share: no fold of one holds the loop for long."""

from __future__ import annotations

import asyncio
from functools import partial

from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.records import SavedGroup
from groupkeeper.storage.backends.journal import unfolded
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.journal.unfolded import FoldPortion, Unfolded
from groupkeeper.storage.base import Batch, ShardAppend
from groupkeeper.storage.codec import group_pieces
from groupkeeper.storage.codec.records import encode_saved
from tests.helpers.core.record_model import RecordModel
from tests.helpers.core.records import commit
from tests.helpers.runtime.coordinator import TOPICS, a_commit, a_world
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.fake_driver import FakeDriver, FakeServer
from tests.helpers.storage.faulty_storage import Gate
from tests.helpers.storage.storage_owner import Owner

METADATA = "x" * 4_000
PARTITIONS = 1_000


class Changes:
    """The changes of a shard, as an append notes them."""

    def __init__(self) -> None:
        self.model = RecordModel()
        self.unfolded = Unfolded()
        self.row = 0

    def commit(self, group_id: str, offset: int, *, is_large: bool = False) -> None:
        self.row += 1
        size = (PARTITIONS, METADATA) if is_large else (1, "")
        record = commit(group_id, offset, partitions=size[0], metadata=size[1])
        self.model.apply_all(0, [record])
        item = ShardAppend(0, 1, [Batch([record], [])], partial(self.model.saved, 0))
        self.unfolded.note(self.row, [item])

    def take(self, *, may_large: bool = True) -> FoldPortion:
        saved = {0: partial(self.model.saved, 0)}
        return self.unfolded.take(saved, self.row, may_large=may_large)

    def saved(self, group_id: str) -> SavedGroup:
        group = self.model.saved(0, group_id)
        assert group is not None
        return group


async def test_a_large_group_is_a_portion_of_its_own_in_the_order_of_the_changes():
    changes = Changes()
    changes.commit("a", 1)
    changes.commit("large", 1, is_large=True)
    changes.commit("b", 1)
    portions = []
    while changes.unfolded.has_changes:
        portions.append(changes.take())
    named = [[value.key for value in await portion.encoded()] for portion in portions]
    assert named == [["a"], ["large"], ["b"]]
    assert [portion.trim_row for portion in portions] == [1, 2, 3]
    (value,) = await portions[1].encoded()
    assert value.data == encode_saved(changes.saved("large"))


async def test_a_large_group_is_not_encoded_while_the_append_waits():
    changes = Changes()
    changes.commit("large", 1, is_large=True)
    assert changes.take().values == []


async def test_a_large_group_is_written_as_it_was_when_it_was_taken():
    changes = Changes()
    changes.commit("large", 1, is_large=True)
    portion, before = changes.take(), encode_saved(changes.saved("large"))
    encoding = asyncio.ensure_future(portion.encoded())
    await asyncio.sleep(0)
    changes.commit("large", 2, is_large=True)
    (value,) = await encoding
    assert value.data == before
    assert changes.unfolded.groups() == [(0, "large")]


def a_storage(driver: FakeDriver) -> JournalStorage:
    now_ms = lambda: round(asyncio.get_running_loop().time() * 1000)  # noqa: E731
    return JournalStorage(driver, node_id=1, name="host:1", lease_ttl_ms=2_000, timer_ms=now_ms)


async def test_a_large_group_that_has_to_wait_keeps_its_entries() -> None:
    changes = Changes()
    changes.commit("a", 1)
    changes.commit("large", 1, is_large=True)
    changes.commit("b", 1)
    portion = changes.take(may_large=False)
    assert [value.key for value in portion.values] == ["a", "b"]
    assert portion.trim_row == 1
    assert changes.unfolded.only_large_wait
    changes.commit("b", 2)
    changes.commit("large", 2, is_large=True)
    portion = changes.take(may_large=False)
    assert ([value.key for value in portion.values], portion.trim_row) == (["b"], 1)
    changes.commit("c", 1)
    portion = changes.take()
    assert ([*portion.rows.items()], portion.trim_row) == ([((0, True, "large"), 2)], 5)
    assert [value.key for value in changes.take().values] == ["c"]
    assert not changes.unfolded.has_changes


@virtual_time
async def test_a_commit_while_a_large_group_is_encoded_is_loaded_again(monkeypatch) -> None:
    server = FakeServer()
    owner = await Owner(a_storage(FakeDriver(server))).start()
    reached, encode = Gate(), group_pieces.encode_in_pieces

    async def held(group: SavedGroup) -> bytes:
        await reached.wait()
        return await encode(group)

    monkeypatch.setattr(unfolded, "encode_in_pieces", held)
    await owner.append(0, [commit("g", 1, partitions=PARTITIONS, metadata=METADATA)])
    await reached.reached.wait()
    await owner.append(0, [commit("g", 2, partitions=3)])
    reached.open()
    expected = owner.model.keys
    await owner.reload()
    assert owner.model.keys == expected
    await owner.fold_all()
    assert not owner.storage.unfolded()
    await owner.reload()
    assert owner.model.keys == expected
    await owner.storage.close()


@virtual_time
async def test_the_journal_of_an_ended_life_with_a_large_group_is_folded() -> None:
    server = FakeServer()
    owner = await Owner(a_storage(FakeDriver(server))).start()
    await owner.append(0, [commit("g", 1)])
    await owner.append(0, [commit("g", 2, partitions=PARTITIONS, metadata=METADATA)])
    expected = owner.model.keys
    await owner.storage.close()
    successor = await Owner(a_storage(FakeDriver(server))).start()
    assert successor.model.keys == expected
    await successor.storage.close()


@virtual_time
async def test_no_group_stops_while_a_fold_takes_longer_than_an_append_may() -> None:
    """The store is folded when it is idle, by an append that has nothing to write."""
    held: dict[str, Gate] = {}

    async def pause(call: str, is_done: bool) -> None:
        await asyncio.sleep(0)
        if call in held and not is_done:
            await held[call].wait()

    storage = a_storage(FakeDriver(FakeServer(), pause))
    async with a_world(storage, Topics(TOPICS), append_timeout_ms=1_000) as world:
        await asyncio.sleep(1)
        gate = held["fold"] = Gate()
        await world.until(world.send(a_commit("g", 1)))
        await gate.reached.wait()
        for offset in range(2, 12):
            await asyncio.sleep(1)
            commit_ = world.send(a_commit("g", offset))
            await world.until(commit_)
            assert commit_.error is ErrorCode.NONE
        assert world.coordinator.stats.appends_failed == 0
        held.clear()
        gate.open()
        await asyncio.sleep(5)
        assert not storage.unfolded()
