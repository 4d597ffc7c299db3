"""The events of a store in topics of a real Kafka are sealed: moved into files, shard by shard."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from structlog.testing import capture_logs
from typer.testing import CliRunner

from groupkeeper import read_events
from groupkeeper.coordinator.cli.main import app
from groupkeeper.coordinator.core.routing import shard_of
from groupkeeper.pipeline.log.coverage import Coverage
from groupkeeper.pipeline.restore.sealed import coverage_of_log
from groupkeeper.storage.backends.kafka_topic.log_rows import TopicLogs
from groupkeeper.storage.event_log.check import verify
from groupkeeper.storage.event_log.check_store import compare
from groupkeeper.storage.event_log.sealing.sealer import FOR_EVER, SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from groupkeeper.storage.event_log.segments import read_segment, segment_names
from groupkeeper.storage.event_log.source import LogNote
from groupkeeper.storage.open import log_store
from groupkeeper.storage.segment_lines import EventDict
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.core.records import commit
from tests.helpers.daemon.failpoint_daemon import SEALING_POINTS
from tests.helpers.storage.kafka_topic_site import KafkaTopicSite
from tests.helpers.storage.sealed_store import until
from tests.helpers.storage.storage_owner import IDENTITY, Owner

pytestmark = pytest.mark.kafka_topic

GROUPS = ("g", "other", "third")
STEPS = SEALING_POINTS[:-1]
"""The topic itself deletes what is old, so nothing is trimmed."""


def shard(group: str) -> int:
    return shard_of(group, IDENTITY.shards)


class Sealed:
    """One store whose events are sealed, and its files."""

    def __init__(self, site: KafkaTopicSite, directory: Path) -> None:
        self.site = site
        self.directory = directory
        self.hook: Callable[[str], None] = lambda step: None
        self.owners: list[Owner] = []

    @property
    def url(self) -> str:
        return f"kafka://127.0.0.1:{self.site.server.port}/{self.site.topic}"

    async def owner(self, segment_bytes: int = 1) -> Owner:
        """Start a process. By default each of its segments has the events of one moment."""
        settings = SealSettings(
            directory=self.directory, segment_bytes=segment_bytes, retention_ms=FOR_EVER
        )
        storage = SealedStorage(
            self.site.storage(), settings, poll_s=0.01, hook=lambda step: self.hook(step)
        )
        owner = Owner(storage)
        self.owners.append(owner)
        return await owner.start()

    async def close(self, owner: Owner) -> None:
        self.owners.remove(owner)
        await owner.storage.close()

    def files(self) -> list[EventDict]:
        return [
            event
            for name in segment_names(self.directory)
            for event in read_segment(self.directory / str(name))
        ]

    async def is_whole(self) -> bool:
        """Each event of the topic is in files once, and the files are sound."""
        in_topic = await asyncio.to_thread(self.site.events)
        counts = Counter((each["log_id"], each["seq"]) for each in self.files())
        assert {*counts.values()} <= {1}, "an event is in two files"
        return {*counts} == {(each["log_id"], each["seq"]) for each in in_topic}

    async def until_whole(self) -> None:
        async with asyncio.timeout(60):
            while not await self.is_whole():  # noqa: ASYNC110 - nothing tells when it changes
                await asyncio.sleep(0.05)
        report = verify(self.directory, reads_events=True)
        assert report.is_sound, report


@pytest.fixture
async def sealed(kafka: RealKafka, tmp_path: Path) -> AsyncIterator[Sealed]:
    sealed = Sealed(KafkaTopicSite(kafka), tmp_path / "log")
    yield sealed
    for owner in (*sealed.owners, *sealed.site.owners):
        await owner.storage.close()


async def append(owner: Owner, first: int, count: int, groups: tuple[str, ...] = GROUPS) -> None:
    for group in groups:
        for offset in range(first, first + count):
            await owner.append(shard(group), [commit(group, offset)])


async def compared(sealed: Sealed) -> list[str]:
    """Compare the store with its files, as ``log verify`` does. Return the problems."""
    reports = await asyncio.to_thread(
        compare, log_store(sealed.url), lambda _, note: note.log_dir and Path(note.log_dir)
    )
    assert {each.name for each in reports} == {"cluster", *map(str, range(IDENTITY.shards))}
    return [problem for each in reports for problem in each.problems]


def is_sealed(owner: Owner) -> bool:
    stats = owner.storage.stats()
    return stats["sealed_seq"] == stats["last_seq"]


async def test_the_events_of_all_shards_are_sealed_across_the_lives_of_a_store(
    sealed: Sealed,
) -> None:
    owner = await sealed.owner()
    await append(owner, 0, 5)
    await until(lambda: is_sealed(owner))
    await sealed.close(owner)
    owner = await sealed.owner()
    await append(owner, 5, 3)
    await sealed.close(owner)
    assert await sealed.is_whole()
    report = verify(sealed.directory, reads_events=True)
    assert report.is_sound, report
    assert await compared(sealed) == []
    verified = ["log", "verify", "--store", sealed.url]
    result = await asyncio.to_thread(CliRunner().invoke, app, verified)
    assert result.exit_code == 0, result.output
    shards = {*re.findall(r", shard (\w+): event \d+ of log", result.output)}
    assert shards == {str(shard(group)) for group in GROUPS}
    coverage = Coverage(coverage_of_log(sealed.directory, {}).segments)
    assert len({*coverage.stores().values()}) == 1
    assert coverage.gaps() == []
    assert len({*coverage.chains().values()}) == len({shard(group) for group in GROUPS})


async def test_a_restart_goes_on_where_sealing_was_and_notes_it_in_the_store(
    sealed: Sealed,
) -> None:
    owner = await sealed.owner()
    await append(owner, 0, 5)
    await until(lambda: is_sealed(owner))
    await sealed.close(owner)
    before = {str(name) for name in segment_names(sealed.directory)}
    notes = [*(await noted(sealed)).values()]
    assert {note.log_dir for note in notes} == {str(sealed.directory)}
    assert sum(note.sealed_seq for note in notes) == len(sealed.files())
    taken: list[str] = []
    sealed.hook = taken.append
    owner = await sealed.owner()
    await append(owner, 5, 1, ("g",))
    await until(lambda: is_sealed(owner))
    assert taken.count("renamed") == 1, "events are sealed again"
    assert before < {str(name) for name in segment_names(sealed.directory)}
    assert await sealed.is_whole()


async def noted(sealed: Sealed) -> dict[str, LogNote]:
    """Return what the store has recorded about each log that has files."""

    def read() -> dict[str, LogNote]:
        store = log_store(sealed.url)
        with store.kept_open():
            found = {}
            for name, open_rows in store.logs().items():
                with closing(open_rows()) as rows:
                    found[name] = rows.note()
        return {name: note for name, note in found.items() if note.log_dir}

    return await asyncio.to_thread(read)


@pytest.mark.parametrize("step", STEPS)
async def test_a_kill_at_a_step_of_sealing_loses_and_doubles_nothing(
    sealed: Sealed, step: str
) -> None:
    module = "tests.helpers.storage.killed_sealer"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, sealed.url, str(sealed.directory), step
    )
    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
    owner = await sealed.owner()
    await append(owner, 2_000, 1)
    await sealed.until_whole()
    await until(lambda: is_sealed(owner))
    assert await compared(sealed) == []


async def test_events_that_the_topic_has_deleted_are_read_from_files(sealed: Sealed) -> None:
    owner = await sealed.owner()
    await append(owner, 0, 5)
    await until(lambda: is_sealed(owner))
    whole = await asyncio.to_thread(lambda: [*read_events(sealed.url, group_id="g")])
    await sealed.close(owner)
    admin = AIOKafkaAdminClient(bootstrap_servers=sealed.site.server.bootstrap)
    await admin.start()
    place = TopicPartition(sealed.site.url().events_topic, shard("g"))
    await admin.delete_records({place: RecordsToDelete(-1)})
    await admin.close()
    gaps: list[Any] = []
    found = await asyncio.to_thread(
        lambda: [*read_events(sealed.url, group_id="g", on_gap=lambda *gap: gaps.append(gap))]
    )
    assert (found, gaps) == (whole, [])
    owner = await sealed.owner()
    await append(owner, 5, 1)
    await until(lambda: is_sealed(owner))
    history: Any = owner.storage
    assert len([event async for event in history.history("g")]) == len(whole) + 1
    assert await compared(sealed) == []


async def test_sealing_that_is_turned_on_late_reports_no_lost_events(sealed: Sealed) -> None:
    first = await sealed.site.owner()
    await append(first, 0, 5, ("g",))
    await first.storage.close()
    sealed.site.owners.remove(first)
    admin = AIOKafkaAdminClient(bootstrap_servers=sealed.site.server.bootstrap)
    await admin.start()
    place = TopicPartition(sealed.site.url().events_topic, shard("g"))
    await admin.delete_records({place: RecordsToDelete(4)})
    await admin.close()
    with capture_logs() as logs:
        for offset in (5, 6):
            owner = await sealed.owner()
            await append(owner, offset, 1, ("g",))
            await sealed.close(owner)
    assert "events_are_lost" not in {line["event"] for line in logs}
    assert await sealed.is_whole()
    assert await compared(sealed) == []


async def test_a_note_of_an_earlier_life_does_not_replace_that_of_a_later_one(
    sealed: Sealed,
) -> None:
    """A process that was suspended may write its note after another one has begun."""
    owner = await sealed.owner()
    await append(owner, 0, 2, ("g",))
    await until(lambda: is_sealed(owner))
    await sealed.close(owner)
    name = str(shard("g"))
    late = await sealed.site.owner()
    storage: Any = late.storage
    life = storage._own
    before = life.log.sealed[name]
    note = LogNote(frozenset(), "elsewhere", sealed_seq=1)
    began, life._began = life._began, before.began - 1
    await life.note_sealed(name, note)
    assert (await noted(sealed))[name].sealed_seq == before.sealed_seq
    life._began = began
    await life.note_sealed(name, note)
    assert (await noted(sealed))[name].sealed_seq == 1


async def test_an_idle_daemon_asks_the_brokers_nothing_for_sealing(
    sealed: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await sealed.owner()
    await append(owner, 0, 2)
    await until(lambda: is_sealed(owner))
    steps = 0
    asked: list[int] = []
    """The steps at which a shard was looked at."""
    bounds = TopicLogs.bounds

    async def counting(self: TopicLogs, partition: int) -> tuple[int, int]:
        asked.append(steps)
        return await bounds(self, partition)

    monkeypatch.setattr(TopicLogs, "bounds", counting)
    thread: Any = owner.storage
    step = thread._sealing.step

    def counted() -> bool:
        nonlocal steps
        steps += 1
        return step()

    thread._sealing.step = counted
    # The first steps look at every shard, and on a busy machine there are many of them. If an idle
    # daemon asked with each step, there would never be 20 steps without a question.
    await until(lambda: not thread._sealing._unread and steps > 20 + max(asked, default=0))
    assert not thread._sealing._unread
