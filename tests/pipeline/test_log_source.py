"""The log of a running daemon is a source of Spark's: what it reads is what the daemon told."""

from __future__ import annotations

import asyncio
import re

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from groupkeeper import read_events
from groupkeeper.pipeline.log.columns import BRONZE_SCHEMA, EVENT_SCHEMA
from groupkeeper.pipeline.log.source import FORMAT, EventLogSource, MissingEvents
from groupkeeper.pipeline.tables.offsets import offsets_as_of
from groupkeeper.storage.base import StorageError
from tests.helpers.clients.ecosystem import Unavailable
from tests.helpers.core.records import commit
from tests.helpers.daemon.daemon import Daemon
from tests.helpers.printed.printed_docs import ROOT
from tests.helpers.storage.postgres_site import PostgresSite
from tests.helpers.storage.real_postgres import RealPostgres, programs
from tests.helpers.storage.sealed_store import DAY_MS, SealedStore, until


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    running = Daemon(
        tmp_path_factory.mktemp("daemon"),
        topics={"orders": 4},
        settings={"log.dir": "segments", "log.segment_ms": 200},
    )
    with_offsets(running.start(), 10)
    yield running
    running.stop()


def with_offsets(daemon: Daemon, base: int) -> dict[tuple[str, int], int]:
    """Commit for two groups, and return what the coordinator then tells of them."""
    admin = AdminClient({"bootstrap.servers": daemon.bootstrap, "logger": None})
    for number, group in enumerate(("billing", "audit")):
        parts = [TopicPartition("orders", p, base + 100 * number + p) for p in range(4)]
        wanted = [ConsumerGroupTopicPartitions(group, parts)]
        for done in admin.alter_consumer_group_offsets(wanted).values():
            done.result(20)
    return live_offsets(daemon)


def live_offsets(daemon: Daemon) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": daemon.bootstrap, "logger": None})
    told = {}
    for group in ("billing", "audit"):
        asked = [ConsumerGroupTopicPartitions(group)]
        for done in admin.list_consumer_group_offsets(asked).values():
            for part in done.result(20).topic_partitions:
                told[group, part.partition] = part.offset
    return told


@pytest.fixture(scope="module")
def store(daemon):
    return str(daemon.directory / "groupkeeper.db")


def test_offsets_of_the_live_log_are_the_live_offsets(spark, daemon, store):
    spark.dataSource.register(EventLogSource)
    live = with_offsets(daemon, 20)
    events = spark.read.format(FORMAT).load(store)
    rows = offsets_as_of(events).collect()
    assert {(row["group"], row["partition"]): row["offset"] for row in rows} == live


def test_what_the_page_says_of_a_notebook_works(spark, daemon, store, capsys):
    with_offsets(daemon, 25)
    page = (ROOT / "docs" / "reference" / "tables.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if FORMAT in block]
    exec(code.replace("groupkeeper.db", store), {"spark": spark})
    assert re.search(r"\| *orders *\| *3 *\| *28 *\|", capsys.readouterr().out)


def test_its_columns_are_those_of_bronze_except_those_that_the_page_names():
    page = (ROOT / "docs" / "reference" / "tables.md").read_text()
    (named,) = re.findall(r"columns of `read_events`, except (.*?),\s+which\s+describe", page)
    lacking = set(BRONZE_SCHEMA.names) - set(EVENT_SCHEMA.names)
    assert set(re.findall(r"`(\w+)`", named)) == lacking == {"dt", "batch_id", "segment", "rest"}


def test_a_clock_that_was_set_back_begins_no_other_store(spark, tmp_path):
    events = asyncio.run(a_log_of_two_clocks(tmp_path))
    assert len({event["log_id"] for event in events}) == 2
    spark.dataSource.register(EventLogSource)
    (row,) = offsets_as_of(spark.read.format(FORMAT).load(str(tmp_path / "store.db"))).collect()
    assert (row["store"], row["offset"]) == (events[0]["log_id"], 2)


@pytest.fixture
def trimmed(tmp_path):
    """A store of nine events, eight of them in files alone, three a file."""
    return asyncio.run(a_trimmed_store(tmp_path))


async def a_trimmed_store(folder):
    store = SealedStore(folder)
    owner = await store.owner()
    for offset in range(9):
        await store.append(owner, 0, [commit("g", offset, partitions=1)])
        store.now_ms += DAY_MS if offset % 3 == 2 else 0
    await until(lambda: store.live_seqs() == [9])
    await owner.storage.close()
    return store


def seqs(store, **options):
    """What a reader yields, without Spark."""
    source = EventLogSource({"path": str(store.path), **options})
    reader = source.reader(source.schema())
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [seq for batch in found for seq in batch.column("seq").to_pylist()]


def test_events_that_are_nowhere_fail_a_read_unless_that_is_accepted(trimmed, tmp_path):
    assert seqs(trimmed) == list(range(1, 10))
    lost = r"events 1 to 8 are neither in .*store.db nor in its segments: log_dir says where .*"
    nowhere = str(tmp_path)
    with pytest.raises(MissingEvents, match=f"{lost}option accept_gaps"):
        seqs(trimmed, log_dir=nowhere)
    assert seqs(trimmed, log_dir=nowhere, after_seq="8") == [9]
    assert seqs(trimmed, log_dir=nowhere, accept_gaps="true") == [9]


def test_a_query_of_what_is_missing_fails_and_says_why(spark, trimmed, tmp_path):
    spark.dataSource.register(EventLogSource)
    options = {"path": str(trimmed.path), "log_dir": str(tmp_path)}
    why = "events 1 to 8 are neither in"
    with pytest.raises(Exception, match=why):
        spark.read.format(FORMAT).options(**options).load().collect()
    stream = spark.readStream.format(FORMAT).options(**options).load().writeStream.format("noop")
    query = stream.trigger(availableNow=True).start()
    with pytest.raises(Exception, match=why):
        query.awaitTermination(60)


def test_a_file_that_is_gone_or_damaged_fails_a_read_unless_that_is_accepted(trimmed):
    first, second = (next(trimmed.log_dir.glob(f"dt=*/events-*-{n}.jsonl.gz")) for n in (3, 6))
    first.unlink()
    with pytest.raises(MissingEvents, match=r"events 1 to 3 are neither in .*option accept_gaps"):
        seqs(trimmed)
    assert seqs(trimmed, after_seq="3") == [4, 5, 6, 7, 8, 9]
    second.write_bytes(second.read_bytes()[:-1])
    with pytest.raises(MissingEvents, match=r"-4-6\..*option accept_gaps"):
        seqs(trimmed, after_seq="3")
    found = seqs(trimmed, accept_gaps="true")
    assert (found[:1] + found[-3:], {1, 2, 3} & set(found)) == ([4, 7, 8, 9], set())


async def a_log_of_two_clocks(folder):
    store = SealedStore(folder)
    owner = await store.owner()
    await store.append(owner, 0, [commit("g", 1, partitions=1)])
    store.now_ms -= DAY_MS
    await store.append(owner, 0, [commit("g", 2, partitions=1)])
    await owner.storage.close()
    return store.appended


def test_options_leave_out_other_groups_and_earlier_events(spark, store):
    spark.dataSource.register(EventLogSource)
    events = read_events(store, 3)
    expected = [event["seq"] for event in events if event["group"] == "audit"]
    reader = spark.read.format(FORMAT).option("group", "audit").option("after_seq", 3)
    assert [row["seq"] for row in reader.load(store).select("seq").collect()] == expected
    assert expected


def test_a_stream_reads_each_event_once_and_goes_on_where_it_was(spark, daemon, store, tmp_path):
    spark.dataSource.register(EventLogSource)
    seen: list[int] = []

    def keep(batch, _):
        seen.extend(row["seq"] for row in batch.select("seq").collect())

    def run():
        stream = spark.readStream.format(FORMAT).option("max_events", 5).load(store)
        writer = stream.writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.start()
        query.processAllAvailable()
        query.stop()

    run()
    first = len(seen)
    with_offsets(daemon, 30)
    run()
    assert len(seen) > first
    assert seen == [event["seq"] for event in read_events(store)][: len(seen)]
    assert {event["seq"] for event in read_events(store)} - set(seen) <= {seen[-1] + 1}


def test_a_stream_of_what_is_available_reads_all_of_it_in_batches(spark, store):
    spark.dataSource.register(EventLogSource)
    batches: list[list[int]] = []

    def keep(batch, _):
        batches.append([row["seq"] for row in batch.select("seq").collect()])

    there = [event["seq"] for event in read_events(store)]
    stream = spark.readStream.format(FORMAT).option("max_events", 5).load(store)
    query = stream.writeStream.foreachBatch(keep).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert len(there) > 10
    assert [len(batch) for batch in batches[:2]] == [5, 5]
    assert [seq for batch in batches for seq in batch][: len(there)] == there


def test_a_source_without_a_path_says_what_it_needs(spark):
    spark.dataSource.register(EventLogSource)
    with pytest.raises(Exception, match="needs a path: the daemon's SQLite file"):
        spark.read.format(FORMAT).load().collect()


@pytest.mark.parametrize(
    ("options", "path", "said"),
    [
        (
            {"grp": "audit"},
            "",
            "no option 'grp': it knows accept_gaps, after_seq, group, log_dir, max_events,",
        ),
        ({"accept_gaps": "some"}, "", "accept_gaps must be true or false, not 'some'"),
        ({"after_seq": "many"}, "", "after_seq must be a whole number, not 'many'"),
        ({"max_events": "0"}, "", "max_events must be at least 1"),
        ({}, "/no/such.db", "/no/such.db: there is no such file; path names a SQLite store"),
        ({}, "postgresql://a@b", "use postgresql://USER@HOST/DATABASE?schema=SCHEMA"),
    ],
)
def test_what_it_cannot_read_is_told_in_one_line(spark, store, options, path, said):
    spark.dataSource.register(EventLogSource)
    with pytest.raises(Exception, match=re.escape(said)):
        spark.read.format(FORMAT).options(**options).load(path or store).collect()
    with pytest.raises(Exception, match=re.escape(said)):
        spark.readStream.format(FORMAT).options(**options).load(path or store)


def test_the_password_of_a_store_is_read_from_a_file(tmp_path):
    asked = {"path": "kafka://me@127.0.0.1:1/topic"}
    with pytest.raises(StorageError, match="password of user 'me'"):
        EventLogSource(asked).streamReader(EVENT_SCHEMA).initialOffset()
    (tmp_path / "password").write_text("geheim")
    asked["password_file"] = str(tmp_path / "password")
    with pytest.raises(StorageError, match="Connect call failed") as failed:
        EventLogSource(asked).streamReader(EVENT_SCHEMA).initialOffset()
    assert "geheim" not in str(failed.value)


def test_a_store_on_a_server_is_read_by_its_url(spark):
    if programs() is None:
        raise Unavailable("PostgreSQL is not installed")
    site = PostgresSite(RealPostgres())

    async def fill(node_id: int, offsets: range) -> None:
        owner = await site.owner(node_id)
        for offset in offsets:
            await owner.append(0, [commit("g", offset), commit("other", offset)])
        await owner.storage.close()

    try:
        asyncio.run(fill(1, range(12)))
        url = f"{site.server.url}?schema={site.schema}"
        told = [*read_events(url)]
        spark.dataSource.register(EventLogSource)
        rows = spark.read.format(FORMAT).load(url).orderBy("seq").collect()
        assert [(row["log_id"], row["seq"], row["group"]) for row in rows] == [
            (event["log_id"], event["seq"], event["group"]) for event in told
        ]
        assert {row["store"] for row in rows} == {told[0]["log_id"]}
        of_group = spark.read.format(FORMAT).option("group", "g").load(url)
        assert of_group.where("seq > 20").count() == 2
        (standing,) = offsets_as_of(of_group).select("offset").distinct().collect()
        assert standing["offset"] == 11
        asyncio.run(fill(2, range(5)))
        (standing,) = (
            offsets_as_of(spark.read.format(FORMAT).load(url)).where("group = 'g'").collect()
        )
        assert (standing["offset"], standing["store"]) == (4, told[0]["log_id"])
        batches: list[int] = []
        stream = spark.readStream.format(FORMAT).option("max_events", 20).load(url).writeStream
        query = stream.foreachBatch(lambda batch, _: batches.append(batch.count()))
        assert query.trigger(availableNow=True).start().awaitTermination(120)
        assert batches == [20, 14]
        with pytest.raises(Exception, match=r"after_seq: .* has a log for each of 1, 2"):
            spark.read.format(FORMAT).option("after_seq", 3).load(url).collect()
    finally:
        site.server.end()


def test_a_store_may_be_named_by_its_url(spark, store):
    spark.dataSource.register(EventLogSource)
    read = spark.read.format(FORMAT).option("group", "audit")
    assert read.load(f"sqlite:///{store}").count() == read.load(store).count() > 0
