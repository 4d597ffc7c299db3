"""The plain calls, over every backend."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.coordinator.core.records import GroupRecord, SavedGroup, SavedOffset
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.embed.messages import OffsetCommitData
from groupkeeper.coordinator.embed.offset_manager import OffsetManager
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.backends.host import PersistentOffsetStorage
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.metadata_store import OffsetAndMetadata
from groupkeeper.storage.base import StorageError, StoreIdentity, StoreRefused
from groupkeeper.storage.offset_store import DEFAULT_IDENTITY, OffsetStore
from tests.helpers.printed.printed_docs import ROOT
from tests.helpers.storage.dict_store import DictStore
from tests.helpers.storage.faulty_storage import FaultyStorage, Gate, fail, fence, lie, slow
from tests.helpers.storage.storage_owner import IDENTITY, SHARDS
from tests.storage.conftest import Store, WallClock

TOO_LONG = "g" * 32_768
A_TIME_OF_TEXT: Any = (7, "", "2026-11-21")


@pytest.fixture
async def offsets(store: Store) -> AsyncIterator[OffsetStore]:
    offsets = OffsetStore(store.make(), IDENTITY, clock=store.clock)
    await offsets.open()
    yield offsets
    await offsets.close()


async def test_what_was_stored_is_fetched_also_by_the_next_process(
    store: Store, offsets: OffsetStore
) -> None:
    assert await offsets.fetch_offset("g", "orders", 0) is None
    await offsets.store_offset("g", "orders", 0, 5, "note")
    await offsets.store_offset("g", "orders", 0, 6)
    await offsets.store_offset("g", "orders", 1, 7)
    await offsets.store_offset("other", "orders", 0, 1)
    await offsets.close()
    again = OffsetStore(store.make(), IDENTITY)
    await again.open()
    found = await again.fetch_offsets("g")
    assert {key: value.offset for key, value in found.items()} == {
        ("orders", 0): 6,
        ("orders", 1): 7,
    }
    one = await again.fetch_offset("g", "orders", 0)
    assert one is not None
    assert (one.offset, one.metadata, one.commit_time_ms) == (6, "", store.clock.now_ms)
    assert await again.fetch_offsets("unknown") == {}
    await again.close()


async def test_deleted_offsets_are_gone_and_the_others_stay(offsets: OffsetStore) -> None:
    for partition in range(3):
        await offsets.store_offset("g", "orders", partition, 5)
    await offsets.delete_offsets("g", [("orders", 0), ("orders", 2), ("orders", 9)])
    await offsets.delete_offsets("unknown", [("orders", 0)])
    assert list(await offsets.fetch_offsets("g")) == [("orders", 1)]


async def test_an_offset_is_kept_with_all_that_it_brings(
    store: Store, offsets: OffsetStore
) -> None:
    await offsets.store_offset("g", "orders", 0, OffsetAndMetadata(7, "note", 1_000, 2_000, 3))
    await offsets.store_offset("g", "orders", 1, OffsetAndMetadata(8))
    await offsets.close()
    async with OffsetStore(store.make(), IDENTITY) as again:
        kept = await again.fetch_group("g")
        assert kept["orders"][0] == SavedOffset(7, 3, "note", 1_000, 2_000, "")
        assert kept["orders"][1] == SavedOffset(8, -1, "", store.clock.now_ms, -1, "")
        assert await again.fetch_group("unknown") == {}


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (("g", "t", 0, "7"), "offset must be a whole number or an OffsetAndMetadata, not '7'"),
        (("g", "t", 0, True), "offset must be a whole number, not True"),
        (("g", "t", 0, OffsetCommitData(7)), "offset must be a whole .*, not OffsetCommitData"),
        (("g", "t", 0, OffsetAndMetadata(7), "x"), "metadata is named twice"),
        (("g", "t", 0, OffsetAndMetadata(*A_TIME_OF_TEXT)), "commit_time_ms must be a whole"),
        (("g", "t", 0, 7, None), "metadata must be a string, not None"),
        (("g", "t", "0", 7), "partition must be a whole number, not '0'"),
        (("g", None, 0, 7), "topic must be a string, not None"),
        ((b"g", "t", 0, 7), "group_id must be a string, not b'g'"),
    ],
)
async def test_what_is_no_offset_is_refused_and_nothing_is_stored(
    offsets: OffsetStore, call: Any, problem: str
) -> None:
    with pytest.raises(TypeError, match=problem):
        await offsets.store_offset(*call)
    assert await offsets.fetch_offsets("g") == {}


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (("g", "t", 0, 2**63), "offset must be at most 9223372036854775807"),
        (("g", "t", 0, -(2**63) - 1), "offset must be at least -9223372036854775808"),
        (("g", "t", 0, OffsetAndMetadata(7, leader_epoch=2**31)), "leader_epoch must be at most"),
        (("g", "t", 0, OffsetAndMetadata(7, "", 2**63)), "commit_time_ms must be at most"),
        (("g", "t", 2**31, 7), "partition must be at most 2147483647"),
        (("g", "t", -1, 7), "partition must be at least 0"),
        (("g", "t", 0, 7, "\ud800"), "metadata: .* surrogates not allowed"),
        (("g", "t", 0, 7, TOO_LONG), "metadata must be at most 32767 bytes of UTF-8, not 32768"),
        ((TOO_LONG, "t", 0, 7), "group_id must be at most"),
        (("g", TOO_LONG, 0, 7), "topic must be at most"),
    ],
)
async def test_what_no_client_could_be_answered_with_is_refused(
    offsets: OffsetStore, call: Any, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        await offsets.store_offset(*call)
    assert await offsets.fetch_offsets("g") == {}


async def test_the_ends_of_the_range_are_stored(offsets: OffsetStore) -> None:
    most = OffsetAndMetadata(2**63 - 1, leader_epoch=2**31 - 1)
    await offsets.store_offset("g", "t", 2**31 - 1, most)
    ((_, kept),) = (await offsets.fetch_offsets("g")).items()
    assert (kept.offset, kept.leader_epoch) == (2**63 - 1, 2**31 - 1)


async def test_without_partitions_all_offsets_of_the_group_go(
    store: Store, offsets: OffsetStore
) -> None:
    for group_id in ("g", "other"):
        await offsets.store_offset(group_id, "orders", 0, 5)
        await offsets.store_offset(group_id, "payments", 1, 6)
    await offsets.delete_offsets("g")
    await offsets.delete_offsets("unknown")
    assert await offsets.fetch_offsets("g") == {}
    assert len(await offsets.fetch_offsets("other")) == 2
    await offsets.delete_offsets("other", [])
    await offsets.close()
    async with OffsetStore(store.make(), IDENTITY) as again:
        assert await again.fetch_offsets("g") == {}
        assert len(await again.fetch_offsets("other")) == 2


async def test_a_group_that_had_members_stays_when_all_its_offsets_go(store: Store) -> None:
    owner = await store.owner()
    group = GroupRecord("g", "consumer", 3, None, None, 1, ())
    shard = shard_of("g", IDENTITY.shards)
    await owner.append(shard, [group])
    await owner.storage.close()
    async with OffsetStore(store.make(), IDENTITY) as offsets:
        await offsets.store_offset("g", "orders", 0, 5)
        await offsets.delete_offsets("g")
    again = await store.owner()
    saved = again.model.saved(shard, "g")
    assert saved == SavedGroup("g", group, {})


async def test_what_was_deleted_is_in_the_event_log_with_its_last_value(
    store: Store, offsets: OffsetStore
) -> None:
    for partition in (0, 1):
        await offsets.store_offset("g", "orders", partition, 5 + partition)
    await offsets.delete_offsets("g", [("orders", 0)])
    await offsets.delete_offsets("g")
    gone = [event for event in store.events() if event["kind"] == "offset_deleted"]
    lost = [[row["offset"] for row in event["topics"][0]["partitions"]] for event in gone]
    assert (lost, [event["reason"] for event in gone]) == ([[5], [6]], ["deleted", "group_deleted"])
    (group,) = [event for event in store.events() if event["kind"] == "group_deleted"]
    assert (group["group"], group["offsets"]) == ("g", 1)


async def test_a_store_with_the_default_settings_needs_no_identity() -> None:
    config = CoordinatorConfig()
    assert StoreIdentity(config.cluster_id, config.shards) == DEFAULT_IDENTITY
    storage = MemoryOffsetStorage()
    coordinator = GroupCoordinator(storage)
    await coordinator.start()
    await OffsetManager(coordinator).commit_offset("g", "orders", 0, 7)
    await coordinator.stop()
    async with OffsetStore(storage) as offsets:
        found = await offsets.fetch_offset("g", "orders", 0)
        assert found is not None
        assert found.offset == 7


async def test_all_offsets_of_a_group_are_one_call_of_the_host_store() -> None:
    host = DictStore()
    async with OffsetStore(PersistentOffsetStorage(host)) as offsets:
        await offsets.store_offset("g", "orders", 0, OffsetAndMetadata(7, "n", 1_000, 2_000, 3))
        assert host.groups["g"]["orders"][0] == OffsetAndMetadata(7, "n", 1_000, 2_000, 3)
        await offsets.delete_offsets("g")
    assert (host.groups, host.calls["delete"]) == ({}, 1)


async def test_the_example_of_the_documentation_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        (ROOT / "docs" / "use" / "embedding.md")
        .read_text()
        .split("## Offsets without a coordinator")[1]
    )
    names: dict[str, Any] = {}
    block = text.split("```python\n")[1].split("```")[0]
    code = compile(block, "embedding.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    await eval(code, names)
    assert names["one"].offset == 17
    assert names["by_topic"]["orders"][1].leader_epoch == 3


async def test_what_was_stored_is_in_the_event_log(store: Store, offsets: OffsetStore) -> None:
    await offsets.store_offset("g", "orders", 0, 5)
    await offsets.store_offset("g", "orders", 0, 3)
    events = [event for event in store.events() if event["kind"] == "commit"]
    rows = [event["topics"][0]["partitions"][0] for event in events]
    assert [(row["previous_offset"], row["offset"]) for row in rows] == [(-1, 5), (5, 3)]
    assert {event["generation"] for event in events} == {-1}


async def test_it_does_not_run_beside_a_coordinator(store: Store) -> None:
    owner = await store.owner()
    with pytest.raises(StoreRefused, match="in use"):
        await OffsetStore(store.make(), IDENTITY).open()
    assert not await owner.storage.append([owner.item(shard) for shard in SHARDS])


async def test_after_a_failure_it_tells_what_the_store_holds() -> None:
    storage = FaultyStorage()
    offsets = OffsetStore(storage, IDENTITY, clock=WallClock())
    await offsets.open()
    await offsets.store_offset("g", "orders", 0, 1)
    for fault, offset, stored in ((fail(), 2, 1), (lie(), 3, 3), (fence(*SHARDS), 4, 3)):
        storage.script("append", fault)
        with pytest.raises(StorageError):
            await offsets.store_offset("g", "orders", 0, offset)
        found = await offsets.fetch_offset("g", "orders", 0)
        assert found is not None
        assert found.offset == stored
    await offsets.close()


async def over_a_host_store(host: DictStore) -> OffsetStore:
    """As a process does that has just been started."""
    offsets = OffsetStore(PersistentOffsetStorage(host), IDENTITY)
    await offsets.open()
    return offsets


async def test_a_store_that_cannot_list_its_groups_is_asked_when_one_is_first_named() -> None:
    host = DictStore()
    for partition in (0, 1):
        host.store("g", "orders", partition, OffsetAndMetadata(5 + partition, "note"))
    offsets = await over_a_host_store(host)
    assert host.calls["fetch_all"] == 0
    found = await offsets.fetch_offset("g", "orders", 0)
    assert found is not None
    assert (found.offset, found.metadata) == (5, "note")
    await offsets.delete_offsets("g", [("orders", 0)])
    assert host.groups["g"]["orders"][0].offset == -1
    await offsets.store_offset("g", "orders", 1, 7)
    assert host.calls["fetch_all"] == 1
    await offsets.close()
    again = await over_a_host_store(host)
    assert {k: v.offset for k, v in (await again.fetch_offsets("g")).items()} == {("orders", 1): 7}
    assert await again.fetch_offsets("unknown") == {}
    await again.close()


async def test_a_group_that_could_not_be_read_is_not_taken_for_an_empty_one() -> None:
    host = DictStore()
    host.store("g", "orders", 0, OffsetAndMetadata(5))
    host.failures["fetch_all"] = 1
    offsets = await over_a_host_store(host)
    with pytest.raises(ConnectionError):
        await offsets.delete_offsets("g", [("orders", 0)])
    assert list(await offsets.fetch_offsets("g")) == [("orders", 0)]
    host.failures["store"] = 1
    with pytest.raises(ConnectionError):
        await offsets.store_offset("g", "orders", 0, 6)
    found = await offsets.fetch_offset("g", "orders", 0)
    assert found is not None
    assert found.offset == 5
    await offsets.close()


async def test_opened_again_it_asks_anew_for_what_the_host_store_has() -> None:
    host = DictStore()
    offsets = await over_a_host_store(host)
    assert await offsets.fetch_offsets("g") == {}
    await offsets.close()
    host.store("g", "orders", 0, OffsetAndMetadata(5))
    await offsets.open()
    assert list(await offsets.fetch_offsets("g")) == [("orders", 0)]
    await offsets.close()


@pytest.mark.parametrize("call", ["acquire", "load"])
async def test_an_opening_that_fails_leaves_the_store_free(call: str) -> None:
    storage = FaultyStorage()
    storage.script(call, fail())
    offsets = OffsetStore(storage, IDENTITY)
    with pytest.raises(StorageError, match="disk full"):
        await offsets.open()
    await offsets.open()
    await offsets.store_offset("g", "orders", 0, 5)
    await offsets.close()


async def test_an_opening_that_is_cancelled_leaves_the_store_free() -> None:
    storage, load = FaultyStorage(), Gate()
    storage.script("load", slow(load))
    opening = asyncio.create_task(OffsetStore(storage, IDENTITY).open())
    await load.reached.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with OffsetStore(storage, IDENTITY) as offsets:
        assert await offsets.fetch_offsets("g") == {}


async def test_a_store_that_is_in_use_stays_with_who_has_it(store: Store) -> None:
    storage = store.make()
    async with OffsetStore(storage, IDENTITY) as offsets:
        with pytest.raises(StoreRefused):
            await OffsetStore(storage, IDENTITY).open()
        await offsets.store_offset("g", "orders", 0, 5)
        assert list(await offsets.fetch_offsets("g")) == [("orders", 0)]


@pytest.mark.parametrize("wrong", [None, "groups.db", {}, MemoryOffsetStorage])
def test_what_is_no_storage_is_told_at_once(wrong: Any) -> None:
    with pytest.raises(TypeError, match="storage must be an OffsetStorage, such as"):
        OffsetStore(wrong)


@pytest.mark.parametrize(
    ("call", "arguments", "problem"),
    [
        ("delete_offsets", ("g", {"t": [0]}), "partitions: Expected `array`, got `object`: {"),
        ("delete_offsets", ("g", "t"), "partitions: Expected `array`, got `str`: 't'"),
        (
            "delete_offsets",
            ("g", [("t", "0")]),
            r"partitions\[0\]\[1\]: Expected `int`, got `str`:",
        ),
        (
            "delete_offsets",
            ("g", ["t"]),
            r"partitions\[0\]: Expected `array`, got `str`: 't'",
        ),
        ("delete_offsets", (None,), "group_id must be a string, not None"),
        ("fetch_offset", (None, "t", 0), "group_id must be a string, not None"),
        ("fetch_offset", ("g", b"t", 0), "topic must be a string, not b't'"),
        ("fetch_offset", ("g", "t", "0"), "partition must be a whole number, not '0'"),
        ("fetch_offsets", (7,), "group_id must be a string, not 7"),
        ("fetch_group", (None,), "group_id must be a string, not None"),
    ],
)
async def test_a_place_of_another_type_is_told_and_not_taken_for_one_without_an_offset(
    call: str, arguments: tuple[Any, ...], problem: str
) -> None:
    """To delete by topic, as a coordinator's call does, deleted nothing and said nothing."""
    async with OffsetStore(MemoryOffsetStorage()) as offsets:
        await offsets.store_offset("g", "t", 0, 5)
        with pytest.raises(TypeError, match=f"^{problem}"):
            await getattr(offsets, call)(*arguments)
        assert list(await offsets.fetch_offsets("g")) == [("t", 0)]
