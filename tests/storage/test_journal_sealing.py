"""The events of shared stores with a journal are moved into files, and read from outside."""

from __future__ import annotations

import asyncio
import copy
import gzip
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import groupkeeper
from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.core.events import GroupCreated
from groupkeeper.storage.backends.journal.driver import JournalDriver, LoggedEvent
from groupkeeper.storage.backends.journal.read_store import NodeLogs
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.key_value.event_chunks import EventChunks
from groupkeeper.storage.backends.key_value.stored_chunks import StoredChunks
from groupkeeper.storage.base import LimitsReads, StorageError, StoreRefused
from groupkeeper.storage.event_log.check import verify
from groupkeeper.storage.event_log.reader import read_events
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from groupkeeper.storage.event_log.several_logs import end_of
from groupkeeper.storage.event_log.source import LogNote, OpenRows
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.clients.real_zookeeper import RealZooKeeper
from tests.helpers.core.records import commit
from tests.helpers.storage.late_appends import TTL_MS
from tests.helpers.storage.sealed_store import UNTIL_S, until
from tests.helpers.storage.sites import KINDS, FakeSite, make_site
from tests.helpers.storage.storage_owner import Owner
from tests.helpers.storage.zookeeper_site import ZooKeeperSite


def node_rows(new_driver: Callable[[], JournalDriver]) -> OpenRows:
    """Return how to open the log of node 1."""
    return partial(NodeLogs(new_driver).open_rows, 1)


class SealedSite:
    """One store whose events are sealed, and its files."""

    def __init__(self, site: Any, directory: Path) -> None:
        self.site = site
        self.directory = directory
        self.owners: list[Owner] = []
        self.hook: Callable[[str], None] = lambda step: None

    async def owner(self, node_id: int = 1) -> Owner:
        """Start a process. Each of its segments has the events of one moment."""
        store = JournalStorage(
            self.site.driver(), node_id=node_id, name=f"host:{node_id}", lease_ttl_ms=TTL_MS
        )
        settings = SealSettings(directory=self.directory, segment_bytes=1)
        storage = SealedStorage(store, settings, poll_s=0.01, hook=lambda step: self.hook(step))
        owner = Owner(storage)
        self.owners.append(owner)
        return await owner.start()

    async def kill(self, owner: Owner) -> None:
        """End a process without any last write to the store or the files."""
        self.owners.remove(owner)
        sealed: Any = owner.storage
        sealed._sealing_task.cancel()
        store = sealed.store
        if store._beating is not None:
            store._beating.cancel()
        await store._journal.end_of_fold()
        await store._driver.close()

    async def read(self, after_seq: int = 0) -> list[EventDict]:
        """Return what a reader of another process gets."""
        return await asyncio.to_thread(
            lambda: [*read_events(node_rows(self.site.driver), after_seq)]
        )

    async def in_store(self) -> list[EventDict]:
        """Return the events that are in the store."""
        return await asyncio.to_thread(
            lambda: [*read_events(node_rows(self.site.driver), live_only=True)]
        )

    async def chunks(self) -> list[object]:
        """Return what the store has for events."""
        if isinstance(self.site, FakeSite):
            return [*self.site.server.event_log]
        return [*await self.site.chunks()]

    async def until_only_the_newest_chunk_is_left(self) -> None:
        async with asyncio.timeout(UNTIL_S):
            while len(await self.chunks()) > 1:  # noqa: ASYNC110 - nothing tells when it changes
                await asyncio.sleep(0.01)

    def in_files(self) -> int:
        """Return the number of events in files. None may be there twice, and none be missing."""
        report = verify(self.directory, reads_events=True)
        assert report.is_sound, report
        return sum(log.events for log in report.logs)


@pytest.fixture(params=KINDS)
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SealedSite]:
    site = SealedSite(make_site(request), tmp_path / "log")
    yield site
    for owner in site.owners:
        await owner.storage.close()


async def append_some(owner: Owner, first: int, count: int) -> None:
    for number in range(first, first + count):
        events = [GroupCreated(group_id=f"g{number}")] * (number % 2)
        await owner.append(number % 4, [commit(f"g{number}", number)], events)


def is_sealed(owner: Owner) -> bool:
    stats = owner.storage.stats()
    return stats["sealed_seq"] == stats["last_seq"] and not stats["unsealed_rows"]


async def test_events_are_in_files_before_the_store_deletes_them(site: SealedSite) -> None:
    owner = await site.owner()
    await append_some(owner, 0, 30)
    await owner.fold_all()
    await append_some(owner, 30, 30)
    await until(lambda: is_sealed(owner))
    assert owner.storage.stats()["last_seq"] == site.in_files() == 90
    await owner.fold_all()
    await append_some(owner, 60, 1)
    events = await site.read()
    assert [event["seq"] for event in events] == [*range(1, 92)]
    assert [event async for event in owner.storage.history("g7")] == [  # type: ignore[attr-defined]
        event for event in events if event["group"] == "g7"
    ]
    await owner.storage.close()
    site.owners.remove(owner)


async def test_a_store_with_little_room_deletes_what_is_in_files(site: SealedSite) -> None:
    driver = site.site.driver()
    owner = await site.owner()
    for first in range(0, 200, 50):
        await append_some(owner, first, 50)
        await owner.fold_all()
    await until(lambda: is_sealed(owner))
    if driver.keeps_events:
        assert len(await site.in_store()) == 300
    assert [event["seq"] for event in await site.read()] == [*range(1, 301)]


async def test_what_a_killed_process_had_not_sealed_is_sealed_by_the_next_one(
    site: SealedSite,
) -> None:
    owner = await site.owner()
    await append_some(owner, 0, 20)
    await until(lambda: is_sealed(owner))
    steps: list[str] = []
    site.hook = steps.append
    await append_some(owner, 20, 5)
    await site.kill(owner)
    again = await site.owner()
    await append_some(again, 25, 5)
    await until(lambda: is_sealed(again))
    assert site.in_files() == again.storage.stats()["last_seq"] == 46  # and a log_started
    await again.fold_all()
    if not site.site.driver().keeps_events:
        await site.until_only_the_newest_chunk_is_left()
    assert [event["seq"] for event in await site.read()] == [*range(1, 47)]


async def test_nothing_is_deleted_while_files_cannot_be_written(site: SealedSite) -> None:
    def fail(step: str) -> None:
        raise OSError("the disk is full")

    site.hook = fail
    owner = await site.owner()
    await append_some(owner, 0, 10)
    await owner.fold_all()
    await until(lambda: owner.storage.stats()["sealing_failures"] > 0)
    assert [event["seq"] for event in await site.in_store()] == [*range(1, 16)]
    await site.kill(owner)
    site.hook = lambda step: None
    again = await site.owner()
    await until(lambda: is_sealed(again))
    assert site.in_files() == 15


async def test_a_reader_beside_a_busy_process_misses_and_doubles_nothing(site: SealedSite) -> None:
    owner = await site.owner()
    seen: list[int] = []
    number = 0
    while len(seen) < 150:
        await append_some(owner, number, 5)
        number += 5
        if number % 40 == 0:
            await owner.fold_all()
        seen += [event["seq"] for event in await site.read(len(seen))]
        assert seen == [*range(1, len(seen) + 1)]


async def test_events_of_another_node_stay_until_it_comes_back(site: SealedSite) -> None:
    def fail(step: str) -> None:
        raise OSError("the disk is full")

    site.hook = fail
    first = await site.owner()
    await append_some(first, 0, 10)
    await site.kill(first)
    site.hook = lambda step: None
    second = await site.owner(node_id=2)
    await append_some(second, 10, 10)
    await second.fold_all()
    await until(lambda: is_sealed(second))
    assert second.storage.stats()["last_seq"] == site.in_files() == 15
    await second.storage.close()
    site.owners.remove(second)
    first = await site.owner()
    await append_some(first, 20, 1)
    await until(lambda: is_sealed(first))
    assert first.storage.stats()["last_seq"] == 17
    assert site.in_files() == 15 + 17


async def test_of_the_notes_of_several_nodes_a_reader_gets_that_of_its_log(
    tmp_path: Path,
) -> None:
    fake = FakeSite()

    async def run(node_id: int, commits: int, sealed: Sequence[str] = ()) -> None:
        store = JournalStorage(
            fake.driver(), node_id=node_id, name=f"host:{node_id}", lease_ttl_ms=TTL_MS
        )
        owner = await Owner(store).start()
        await append_some(owner, 0, commits)
        if commits:
            await store.event_source().note_place(f"/node-{node_id}")
            await store.event_source().note_sealed(0, sealed, ())
        await store.close()

    async def notes() -> list[LogNote]:
        def read() -> list[LogNote]:
            noted = []
            for open_log in NodeLogs(fake.driver).logs().values():
                with closing(open_log()) as rows:
                    noted.append(rows.note())
            return noted

        return await asyncio.to_thread(read)

    await run(2, 3)
    (first, *_) = fake.server.events()
    await run(1, 0)  # it only names a store, as a move by another node does
    assert await notes() == [LogNote(frozenset(), "/node-2", f"{first['log_id']}/2")]
    named = fake.server.seal_notes[2]
    fake.server.seal_notes[2] = b'{"log_dir": "/node-2"}'  # as older versions write it
    assert await notes() == [LogNote(frozenset(), "/node-2")]
    fake.server.seal_notes[2] = named
    await run(1, 3)
    assert {note.log_dir for note in await notes()} == {"/node-2", "/node-1"}
    await run(2, 3, sealed=[first["log_id"]])  # its log begins behind the first one
    await run(1, 3)
    fake.server.event_log = [
        event for event in fake.server.event_log if event["log_id"] != first["log_id"]
    ]
    name = f"{first['log_id']}/2"
    assert LogNote(frozenset([first["log_id"]]), "/node-2", name) in await notes()


async def sealed_beyond_its_image(log_dir: Path) -> tuple[SealedSite, Owner, dict[str, Any]]:
    """Return a store whose events are all in files, and its content of ten appends before."""
    fake = FakeSite()
    site = SealedSite(fake, log_dir)
    owner = await site.owner()
    await append_some(owner, 0, 10)
    await owner.fold_all()
    image = copy.deepcopy(vars(fake.server))
    await append_some(owner, 10, 10)
    await until(lambda: is_sealed(owner))
    return site, owner, image


async def test_a_store_that_was_set_back_is_sealed_as_another_branch(tmp_path: Path) -> None:
    site, owner, image = await sealed_beyond_its_image(tmp_path / "log")
    vars(site.site.server).update(image)
    with pytest.raises(Exception, match=r"seq|doubt"):
        await append_some(owner, 20, 1)
    await owner.reload()
    await append_some(owner, 30, 20)
    await until(lambda: is_sealed(owner))
    events = await site.read()
    assert [event["seq"] for event in events] == [*range(1, 47)]
    (started,) = (event for event in events if event["kind"] == "log_started")
    assert (started["previous_seq"], started["reason"]) == (15, "older_store")
    await owner.storage.close()


async def test_after_a_set_back_no_event_of_the_new_log_is_deleted_before_it_is_in_a_file(
    tmp_path: Path,
) -> None:
    """Sealing may delete what it had sealed before it notices that the store was set back."""
    site, owner, image = await sealed_beyond_its_image(tmp_path / "log")
    sealed: Any = owner.storage
    sealed._sealing_task.cancel()
    vars(site.site.server).update(image)
    with pytest.raises(StorageError):
        await append_some(owner, 20, 1)
    await owner.reload()
    await append_some(owner, 30, 10)
    await owner.fold_all()
    while await sealed.store.event_source().trim(30):
        pass
    events = await site.read()
    assert [event["kind"] for event in events if event["seq"] == 16] == ["log_started"]
    await owner.storage.close()


async def test_a_sealed_store_still_limits_reads(site: SealedSite) -> None:
    owner = await site.owner()
    assert isinstance(owner.storage, LimitsReads)
    assert owner.storage.read_time_left_ms() > 0


async def test_a_reader_creates_no_store(site: SealedSite) -> None:
    def read() -> None:
        NodeLogs(site.site.driver).logs()

    with pytest.raises(StoreRefused, match="there is no store"):
        await asyncio.to_thread(read)
    owner = await site.owner()
    assert await asyncio.to_thread(lambda: end_of(NodeLogs(site.site.driver).logs())) == {}
    await append_some(owner, 1, 1)
    assert await asyncio.to_thread(lambda: end_of(NodeLogs(site.site.driver).logs())) == {"1": 2}


@pytest.mark.zookeeper
async def test_the_events_of_a_store_on_a_server_are_followed(
    zookeeper: RealZooKeeper, tmp_path: Path
) -> None:
    inner = ZooKeeperSite(zookeeper)
    site = SealedSite(inner, tmp_path / "log")
    owner = await site.owner()
    await append_some(owner, 0, 3)
    config = tmp_path / "config.toml"
    url = f"zookeeper://{zookeeper.servers}{inner.chroot}"
    config.write_text(f'[storage]\nurl = "{url}"\n')
    for place in (["--config", str(config)], ["--store", url]):
        tail = ["log", "tail", *place, "-o", "json"]
        found = await asyncio.to_thread(CliRunner().invoke, app, tail)
        assert found.exit_code == 0, found.output
        assert [json.loads(line)["seq"] for line in found.stdout.splitlines()] == [1, 2, 3, 4]
    events = await asyncio.to_thread(lambda: [*groupkeeper.read_events(url)])
    assert [event["seq"] for event in events] == [1, 2, 3, 4]
    await owner.storage.close()


async def test_two_readers_of_one_connection_get_each_event_once() -> None:
    """Sealing and the history of a group share a connection."""

    def line(seq: int) -> bytes:
        event = {"log_id": "a", "seq": seq, "ts_ms": 1, "group": "g", "kind": "group_created"}
        return msgspec.json.encode(event) + b"\n"

    chunks = {"1": gzip.compress(line(1)), "2": gzip.compress(line(2))}

    async def names() -> list[str]:
        return [*chunks]

    async def read(wanted: Sequence[str]) -> dict[str, bytes]:
        await asyncio.sleep(0)
        return {name: chunks[name] for name in wanted}

    stored = StoredChunks(names, read)
    await stored.logs()
    chunks["2"] += gzip.compress(line(3))

    async def all_seqs() -> list[int]:
        (span,) = await stored.logs()
        found: list[int] = []
        while not found or found[-1] < span.last_seq:
            found += [each.seq for each in await stored.events("a", found[-1] if found else 0)]
        return found

    assert await asyncio.gather(*(all_seqs() for _ in range(8))) == [[1, 2, 3]] * 8


def test_the_newest_chunk_is_the_last_one_even_if_the_clock_was_set_back() -> None:
    chunks = EventChunks([], chunk_bytes=1)
    names: list[str] = []
    for seq, ts_ms in enumerate((2_000, 2_000, 1_000, 1_000, 3_000), 1):
        ((name, _),) = chunks.add([LoggedEvent("a", seq, ts_ms, ("g", b"{}"))])
        names.append(name)
    assert names == sorted({*names})


async def test_a_history_has_each_event_once_though_a_repeated_fold_stored_it_twice() -> None:
    def chunk(*seqs: int) -> bytes:
        event = {"log_id": "a", "ts_ms": 1, "group": "g", "kind": "group_created"}
        return gzip.compress(
            b"".join(msgspec.json.encode(event | {"seq": n}) + b"\n" for n in seqs)
        )

    chunks = {"2": chunk(2, 3, 4), "1": chunk(1, 2, 3)}

    async def names() -> list[str]:
        return [*chunks]

    async def read(wanted: Sequence[str]) -> dict[str, bytes]:
        return {name: chunks[name] for name in wanted}

    found = StoredChunks(names, read).history("g", 0)
    assert [event["seq"] async for event in found] == [1, 2, 3, 4]


async def test_a_damaged_chunk_is_named() -> None:
    async def names() -> list[str]:
        return ["1"]

    async def read(wanted: Sequence[str]) -> dict[str, bytes]:
        return {"1": b"damage"}

    with pytest.raises(StorageError, match="the events 1 cannot be read"):
        await StoredChunks(names, read).logs()
