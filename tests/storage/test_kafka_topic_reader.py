"""The events of a store in topics of a real Kafka, read by URL beside the process that uses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import typer
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from typer.testing import CliRunner

from groupkeeper import read_events
from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.cli.pipeline.restoring import History, standing_in_store
from groupkeeper.coordinator.cli.store_place import StorePlace
from groupkeeper.coordinator.cli.stored_events import stored_events
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.pipeline.log.coverage import Coverage
from groupkeeper.pipeline.restore.plan import Partition
from groupkeeper.pipeline.restore.sealed import coverage_of_log
from groupkeeper.storage.backends.kafka_topic import log_rows
from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.event_log.segments import read_segment, segment_names
from groupkeeper.storage.event_log.several_logs import end_of
from groupkeeper.storage.event_log.source import EventsMoved
from groupkeeper.storage.event_log.store_names import parse_store_name
from groupkeeper.storage.open import log_store
from groupkeeper.storage.segment_lines import EventDict
from groupkeeper.storage.tools.by_url import land_events_of
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.core.records import commit
from tests.helpers.storage.kafka_topic_site import KafkaTopicSite
from tests.helpers.storage.storage_owner import IDENTITY, Owner

pytestmark = pytest.mark.kafka_topic

GROUPS = ("g", "other", "third")


@pytest.fixture
async def site(kafka: RealKafka) -> AsyncIterator[KafkaTopicSite]:
    site = KafkaTopicSite(kafka)
    yield site
    for owner in site.owners:
        await owner.storage.close()


def url_of(site: KafkaTopicSite) -> str:
    return f"kafka://127.0.0.1:{site.server.port}/{site.topic}"


def shard(group: str) -> int:
    return shard_of(group, IDENTITY.shards)


async def append(owner: Owner, group: str, count: int) -> None:
    for offset in range(count):
        await owner.append(shard(group), [commit(group, offset)])


async def read(site: KafkaTopicSite, *arguments: Any, **asked: Any) -> list[EventDict]:
    return await asyncio.to_thread(lambda: [*read_events(url_of(site), *arguments, **asked)])


async def delete_before(site: KafkaTopicSite, group: str, offset: int) -> None:
    """Delete the oldest messages of a group's log, as retention does. -1 means all."""
    admin = AIOKafkaAdminClient(bootstrap_servers=site.server.bootstrap)
    await admin.start()
    try:
        place = TopicPartition(site.url().events_topic, shard(group))
        await admin.delete_records({place: RecordsToDelete(offset)})
    finally:
        await admin.close()


def by_shard(events: list[EventDict]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for event in events:
        found.setdefault(event["shard"], []).append(event["seq"])
    return found


async def test_all_events_are_read_in_order_across_the_lives_of_a_store(
    site: KafkaTopicSite,
) -> None:
    owner = await site.owner()
    for group in GROUPS:
        await append(owner, group, 5)
    owner = await site.again(owner)
    for group in GROUPS:
        await append(owner, group, 2)
    found = await read(site)
    assert sorted(found, key=repr) == sorted(await asyncio.to_thread(site.events), key=repr)
    assert all(seqs == [*range(1, len(seqs) + 1)] for seqs in by_shard(found).values())
    times = [event["ts_ms"] for event in found]
    assert times == sorted(times)
    names = {e["shard"]: e["store"] for e in found if e["kind"] == "log_started"}
    (store,) = {parse_store_name(name).store for name in names.values()}
    assert names == {each: f"{store}/shard-{each}" for each in names}


async def test_the_shards_are_one_store_in_files_and_tables(
    site: KafkaTopicSite, tmp_path: Path
) -> None:
    """A new shard has no ``log_started``: its name is in the manifest."""

    async def landed() -> Coverage:
        await asyncio.to_thread(land_events_of, url_of(site), tmp_path, lambda *_: None)
        folders = await asyncio.to_thread(lambda: [*tmp_path.glob("*/")])
        held = [coverage_of_log(each, {}).segments for each in folders]
        return Coverage(part for parts in held for part in parts)

    owner = await site.owner()
    await append(owner, "g", 2)
    first = await landed()
    for group in GROUPS:
        await append(owner, group, 3)
    owner = await site.again(owner)
    await append(owner, "g", 1)
    for coverage in (first, await landed()):
        assert len({*coverage.stores().values()}) == 1
        assert not coverage.several_nodes()
        assert coverage.gaps() == []
    assert first.stores().items() <= coverage.stores().items(), "no new shard renames the store"
    assert len({*coverage.chains().values()}) == len({shard(group) for group in GROUPS})


async def test_the_events_of_a_group_are_read_from_any_seq_of_its_log(site: KafkaTopicSite) -> None:
    owner = await site.owner()
    await append(owner, "g", 700)  # more than one read returns
    await append(owner, "other", 3)
    wanted = [event for event in await read(site) if event["group"] == "g"]
    assert len(wanted) == 700
    assert await read(site, group_id="g") == wanted
    for after_seq in (0, 1, 350, 698, 699, 700, 701):
        found = await read(site, after_seq, group_id="g")
        assert found == [event for event in wanted if event["seq"] > after_seq]
    assert await read(site, group_id="nobody's") == []


async def test_a_reader_goes_on_where_it_was_in_each_log(site: KafkaTopicSite) -> None:
    owner = await site.owner()
    for group in GROUPS:
        await append(owner, group, 3)
    before = await read(site)
    end = await asyncio.to_thread(lambda: end_of(log_store(url_of(site)).logs()))
    assert set(end) == {"cluster", *map(str, range(IDENTITY.shards))}
    assert sum(end.values()) == len(before)
    await append(owner, "g", 2)
    new = await read(site, end)
    assert [(event["group"], event["kind"]) for event in new] == [("g", "commit")] * 2
    assert await read(site) == [*before, *new]
    with pytest.raises(ValueError, match="a number for each of 0, 1, 2, 3, cluster"):
        await read(site, 3)


@pytest.mark.parametrize("offset", [4, -1])
async def test_a_reader_whose_events_are_deleted_is_not_at_the_end(
    site: KafkaTopicSite, offset: int
) -> None:
    owner = await site.owner()
    await append(owner, "g", 5)
    (open_rows,) = log_store(url_of(site), group_id="g").logs().values()
    rows = await asyncio.to_thread(open_rows)
    try:
        await asyncio.to_thread(rows.hold)
        await delete_before(site, "g", offset)
        with pytest.raises(EventsMoved, match=r"were deleted while they were read: read again"):
            await asyncio.to_thread(lambda: [*rows.rows(0)])
    finally:
        await asyncio.to_thread(rows.close)


def printed(output: str) -> list[str]:
    """The lines of a command. On a busy machine the owner of the store, which is in this process,
    logs late beats between them."""
    return [line for line in output.splitlines() if "beat_failed" not in line]


async def test_events_that_retention_deleted_are_a_gap_and_nothing_that_a_look_reports(
    site: KafkaTopicSite,
) -> None:
    owner = await site.owner()
    await append(owner, "g", 5)
    whole = [event["seq"] for event in await read(site, group_id="g")]
    await delete_before(site, "g", 4)
    gaps: list[tuple[int, int]] = []
    found = await read(site, group_id="g", on_gap=lambda *gap: gaps.append(gap))
    left = [event["seq"] for event in found]
    assert left == whole[-3:]
    assert gaps == [(1, left[0] - 1)]
    tail = ["log", "tail", "--group", "g", "--store", url_of(site)]
    told = await asyncio.to_thread(CliRunner().invoke, app, tail)
    assert (len(printed(told.stdout)), told.stderr) == (3, "")


async def test_a_shard_whose_events_are_all_deleted_is_a_gap_and_is_followed(
    site: KafkaTopicSite,
) -> None:
    owner = await site.owner()
    await append(owner, "g", 5)
    before = (await read(site, group_id="g"))[-1]["seq"]
    await delete_before(site, "g", -1)
    store = log_store(url_of(site), group_id="g")
    end = await asyncio.to_thread(lambda: end_of(store.logs()))
    assert end == {str(shard("g")): before}
    gaps: list[tuple[int, int]] = []
    assert await read(site, group_id="g", on_gap=lambda *gap: gaps.append(gap)) == []
    assert gaps == [(1, before)]
    await append(owner, "g", 1)
    gaps.clear()
    found = await read(site, end, group_id="g", on_gap=lambda *gap: gaps.append(gap))
    assert ([each["seq"] for each in found], gaps) == ([before + 1], [])


async def test_a_restore_keeps_what_only_deleted_events_named(site: KafkaTopicSite) -> None:
    owner = await site.owner()
    await owner.append(shard("g"), [commit("g", 1, topic="old")])
    await append(owner, "g", 3)
    await delete_before(site, "g", 2)
    place = StorePlace(url_of(site))
    asked = History("g", 10**15, (place, None, None), [], accepts_gaps=False)
    found = await asyncio.to_thread(standing_in_store, place, asked)
    assert {each.topic: value.offset for each, value in found.offsets.items()} == {"orders": 2}
    assert found.named == {Partition("orders", 0)}
    await delete_before(site, "g", -1)
    with pytest.raises(typer.Exit):
        await asyncio.to_thread(standing_in_store, place, asked)


async def test_a_store_that_is_not_there_is_refused_and_not_created(site: KafkaTopicSite) -> None:
    with pytest.raises(StoreRefused, match="there is no store"):
        await read(site)
    admin = AIOKafkaAdminClient(bootstrap_servers=site.server.bootstrap)
    await admin.start()
    try:
        assert not [name for name in await admin.list_topics() if name.startswith(site.topic)]
    finally:
        await admin.close()


class CountingConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """Counts connections, and requests for messages."""

    started = 0
    asked = 0

    async def start(self) -> None:
        CountingConsumer.started += 1
        await super().start()

    async def getmany(self, *partitions: Any, **asked: Any) -> Any:
        CountingConsumer.asked += 1
        return await super().getmany(*partitions, **asked)


async def test_a_look_for_new_events_neither_connects_nor_reads_messages_again(
    site: KafkaTopicSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_rows, "AIOKafkaConsumer", CountingConsumer)
    owner = await site.owner()
    await append(owner, "g", 2)
    source = stored_events(StorePlace(url_of(site)), None, "g")

    loop = asyncio.get_running_loop()

    def follow() -> None:
        with source.kept_open():
            end = source.end()
            started, asked = CountingConsumer.started, CountingConsumer.asked
            assert source.end() == end
            assert CountingConsumer.asked == asked
            asyncio.run_coroutine_threadsafe(append(owner, "g", 1), loop).result()
            assert source.end() != end
            assert [event["kind"] for event in source.read(after=end)] == ["commit"]
            assert CountingConsumer.started == started

    await asyncio.to_thread(follow)


async def test_the_commands_read_a_store_in_topics(site: KafkaTopicSite) -> None:
    owner = await site.owner()
    await append(owner, "g", 3)
    await append(owner, "other", 2)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, "--store", url_of(site)])
        assert result.exit_code == 0, result.output
        return result.stdout

    lines = printed(await asyncio.to_thread(run, "log", "tail", "-n", "4"))
    assert ["other" in line for line in lines] == [False, False, True, True]
    only = await asyncio.to_thread(run, "log", "tail", "--group", "other")
    assert len(printed(only)) == 2


async def test_the_pipeline_gets_the_events_of_each_shard_in_files_once(
    site: KafkaTopicSite, tmp_path: Path
) -> None:
    def land(place: str = "log") -> int:
        return land_events_of(url_of(site), tmp_path / place, lambda *_: None).events

    owner = await site.owner()
    await append(owner, "g", 700)  # more than one read returns
    await append(owner, "other", 3)
    before = len(await read(site))
    assert [await asyncio.to_thread(land) for _ in range(2)] == [before, 0]
    await delete_before(site, "other", -1)
    owner = await site.again(owner)
    await append(owner, "g", 2)
    await append(owner, "other", 1)
    assert await asyncio.to_thread(land) == 5  # in both shards also that a log began
    places = {file.parent.parent for file in (tmp_path / "log").rglob("dt=*/events-*")}
    found = [
        event
        for place in places
        for name in segment_names(place)
        for event in read_segment(place / str(name))
    ]
    assert len({(each["log_id"], each["seq"]) for each in found}) == len(found) == before + 5
    late = await asyncio.to_thread(land, "late")
    assert late == before + 5 - 3
