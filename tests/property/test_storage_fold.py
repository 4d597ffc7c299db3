"""replay(log) == replay(folded tables plus the rest of the log) == model, for any records.

The fold is tried as a whole, on SQLite itself: what it may get wrong lies between the statements.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
    ClassicProtocol,
    ClassicSession,
    ConsumerCurrentAssignment,
    ConsumerGroupEpoch,
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberFields,
    ConsumerMemberRemoved,
    ConsumerTarget,
    PatternTopics,
    ResolvedPattern,
)
from groupkeeper.coordinator.core.records import (
    AdoptedTopic,
    AdoptionMark,
    CommittedTopic,
    GroupConfigs,
    GroupRecord,
    GroupRemoved,
    JournalPosition,
    ListenerPort,
    OffsetsAdopted,
    OffsetsCommitted,
    OffsetsRemoved,
    PartitionEnd,
    PendingEnded,
    Record,
    SavedGroup,
    SavedMember,
    SavedOffset,
    TopicRecord,
    TopicRemoved,
    UpstreamId,
)
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import Batch, ShardAppend
from groupkeeper.storage.codec.events import Stamp
from groupkeeper.storage.codec.records import (
    decode_payload,
    decode_record,
    decode_saved,
    encode_payload,
    encode_record,
    encode_saved,
)
from groupkeeper.storage.keyed import KeyedRecords
from tests.helpers.core.examples import examples
from tests.helpers.core.record_model import RecordModel
from tests.helpers.core.records import pending
from tests.helpers.storage.storage_owner import SHARDS, Owner
from tests.helpers.storage.writer_connection import connecting

# Few names, so that records meet.
group_ids = st.sampled_from(["", "a", "b\u0000'\"", "\U0001f600"])
topics = st.sampled_from(["orders", "pay.ments", "a'\"b"])
topic_ids = st.sampled_from(["", "AAAAAAAAAAAAAAAAAAAAAQ"])
partitions = st.integers(0, 2)
offsets = st.integers(0, 2**63 - 1)
text = st.text(max_size=5)
times = st.integers(-1, 2**45)

members = st.builds(
    SavedMember,
    member_id=text,
    group_instance_id=st.none() | text,
    client_id=text,
    client_host=text,
    rebalance_timeout_ms=st.integers(0, 2**31 - 1),
    session_timeout_ms=st.integers(0, 2**31 - 1),
    subscription=st.binary(max_size=8),
    assignment=st.binary(max_size=8),
)
group_records = st.builds(
    GroupRecord,
    group_id=group_ids,
    protocol_type=st.none() | text,
    generation_id=st.integers(0, 2**31 - 1),
    protocol_name=st.none() | text,
    leader_id=st.none() | text,
    state_timestamp_ms=times,
    members=st.lists(members, max_size=2).map(tuple),
)
committed_partitions = st.tuples(partitions, offsets, st.just(-1), st.integers(-1, 5), text)
commits = st.builds(
    OffsetsCommitted,
    group_id=group_ids,
    generation_id=st.integers(-1, 5),
    member_id=text,
    group_instance_id=st.none() | text,
    client_id=text,
    client_host=text,
    principal=text,
    commit_time_ms=times,
    expire_time_ms=times,
    topics=st.lists(
        st.builds(
            CommittedTopic,
            topics,
            topic_ids,
            st.lists(committed_partitions, min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=2,
    ),
)
saved_offsets = st.builds(SavedOffset, offsets, st.integers(-1, 5), text, times, times, topic_ids)
group_changes: st.SearchStrategy[Record] = st.one_of(
    commits,
    commits,
    group_records,
    st.builds(GroupRemoved, group_ids),
    st.builds(
        OffsetsAdopted,
        group_ids,
        st.lists(
            st.builds(
                AdoptedTopic,
                topics,
                topic_ids,
                st.lists(st.tuples(partitions, offsets), min_size=1, max_size=3),
            ),
            max_size=2,
        ),
    ),
    st.builds(OffsetsRemoved, group_ids, st.lists(st.tuples(topics, partitions), max_size=3)),
    st.builds(PartitionEnd, topic_ids, partitions, st.integers(-1, 100)),
    st.builds(pending, st.sampled_from(["p1", "p2"]), offset=offsets, metadata=text),
    st.builds(PendingEnded, st.sampled_from(["p1", "p2"])),
    st.builds(JournalPosition, topic_ids, offsets),
    st.builds(AdoptionMark, group_ids, st.sampled_from(["", "begun", "removed"]), times),
)
topic_sets = st.lists(text, max_size=2, unique=True).map(lambda names: tuple(sorted(names)))
ids_of_members = st.sampled_from(["a", "b"])
partitions_of = st.dictionaries(topic_ids, st.lists(partitions, max_size=2).map(tuple), max_size=2)
owned = st.dictionaries(
    topic_ids, st.lists(st.tuples(partitions, st.integers(1, 9)), max_size=2).map(tuple), max_size=2
)
consumer_members = st.builds(
    ConsumerMemberFields,
    member_id=ids_of_members,
    group_instance_id=st.none() | text,
    rack_id=st.none() | text,
    client_id=text,
    rebalance_timeout_ms=st.integers(-1, 2**31 - 1),
    subscribed_topic_names=topic_sets,
    subscribed_topic_regex=st.none() | text,
    server_assignor=st.none() | text,
    classic=st.none()
    | st.builds(
        ClassicSession,
        st.integers(1, 9),
        st.just(()) | st.builds(ClassicProtocol, text, st.binary(max_size=4)).map(lambda p: (p,)),
    ),
)
currents = st.builds(
    AssignedFields, st.integers(0, 3), st.integers(-2, 9), st.integers(-1, 9), owned, owned
)
resolved = st.builds(PatternTopics, topic_sets, st.integers(0, 9), times)


@st.composite
def consumer_changes(draw: st.DrawFn) -> list[Record]:
    """A member that is set, and what is assigned to it; or one of the other records."""
    group_id, member = draw(group_ids), draw(consumer_members)
    epoch, member_id = draw(st.integers(1, 9)), member.member_id
    return draw(
        st.sampled_from(
            [
                [ConsumerGroupRecord(group_id, epoch)],
                [ConsumerGroupEpoch(group_id, epoch, draw(st.integers(0, 2**64 - 1)))],
                [
                    ConsumerMember(group_id, member),
                    ConsumerTarget(group_id, epoch, 5, {member_id: draw(partitions_of)}),
                    ConsumerCurrentAssignment(group_id, member_id, draw(currents)),
                ],
                [ConsumerMemberRemoved(group_id, member_id)],
                [ResolvedPattern(group_id, draw(text), draw(st.none() | resolved))],
            ]
        )
    )


cluster_changes: st.SearchStrategy[Record] = st.one_of(
    st.builds(TopicRecord, topics, topic_ids, st.integers(1, 9)),
    st.builds(TopicRemoved, topics),
    st.builds(GroupConfigs, group_ids, st.dictionaries(text, text, max_size=2)),
    st.builds(UpstreamId, st.just("upstream")),
    st.builds(ListenerPort, st.integers(0, 3), st.integers(0, 2)),
)
steps = st.one_of(
    st.tuples(st.sampled_from([0, 1]), st.lists(group_changes, min_size=1, max_size=4)),
    st.tuples(st.sampled_from([0, 1]), consumer_changes()),
    st.tuples(st.just(-1), st.lists(cluster_changes, min_size=1, max_size=2)),
)
appends = st.lists(steps, max_size=4)
"""Several steps in one append; an empty one only folds."""


Append = list[tuple[int, list[Record]]]


async def write(
    path: Path, history: list[tuple[Append, bool]], fold_after: int, part_bytes: int
) -> None:
    """Write the history, and after the appends that say so compare a load with the model."""
    storage = SqliteOffsetStorage(path, fold_after=fold_after, part_bytes=part_bytes)
    owner = await Owner(storage).start()
    try:
        for append, reload in history:
            for shard, records in append:
                owner.model.apply_all(shard, records)
            items = [owner.item(shard, Batch(records, [])) for shard, records in append]
            assert not await owner.storage.append(items or [owner.item(s) for s in SHARDS])
            if reload:
                wanted = owner.model.keys
                await owner.reload()
                assert owner.model.keys == wanted
    finally:
        await owner.storage.close()
    for _ in range(2):
        again = await Owner(SqliteOffsetStorage(path, part_bytes=part_bytes)).start()
        try:
            assert again.model.keys == owner.model.keys
            await again.fold_all()
        finally:
            await again.storage.close()


@given(
    history=st.lists(st.tuples(appends, st.booleans()), max_size=8),
    fold_after=st.sampled_from([0, 3, 50_000]),
    part_bytes=st.sampled_from([1, 200, 500_000]),
)
@settings(max_examples=examples(100), deadline=None)
def test_a_load_yields_the_model_whatever_was_folded(
    history: list[tuple[Append, bool]], fold_after: int, part_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(write(Path(directory) / "store.db", history, fold_after, part_bytes))


class DyingWriter(sqlite3.Connection):
    """Fails every statement of a fold from some number on, as a disk does; the row is written."""

    left = 0

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if " groups" in sql or "group_parts" in sql or " keyed" in sql:
            type(self).left -= 1
            if type(self).left < 0:
                raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *arguments)


async def fail(path: Path, history: list[Append], part_bytes: int, statements: int) -> None:
    """Write the history on a disk that fails; compare what a kill leaves behind with the model."""
    connect = connecting(DyingWriter)
    storage = SqliteOffsetStorage(path, fold_after=0, part_bytes=part_bytes, connect=connect)
    DyingWriter.left = 1 << 30
    owner = await Owner(storage).start()
    DyingWriter.left = statements
    try:
        for append in history:
            for shard, records in append:
                owner.model.apply_all(shard, records)
            items = [owner.item(shard, Batch(records, [])) for shard, records in append]
            assert not await storage.append(items or [owner.item(s) for s in SHARDS])
        await storage.on_writer(lambda _: None)
        killed = path.with_name("killed.db")
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{killed}{suffix}")
    finally:
        await storage.close()
    for left in (killed, path):
        again = await Owner(SqliteOffsetStorage(left, part_bytes=part_bytes)).start()
        try:
            assert again.model.keys == owner.model.keys
            await again.fold_all()
        finally:
            await again.storage.close()


@given(
    history=st.lists(appends, min_size=1, max_size=8),
    part_bytes=st.sampled_from([1, 200, 500_000]),
    statements=st.integers(0, 20),
)
@settings(max_examples=examples(100), deadline=None)
def test_no_statement_of_a_fold_that_fails_costs_a_record_or_an_append(
    history: list[Append], part_bytes: int, statements: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(fail(Path(directory) / "store.db", history, part_bytes, statements))


@given(records=st.lists(group_changes | cluster_changes, max_size=20), cut=st.integers(0, 20))
@settings(max_examples=examples(200), deadline=None)
def test_replaying_a_suffix_over_what_already_holds_it_changes_nothing(
    records: list[Record], cut: int
) -> None:
    """Why a fold may run ahead of folded_row: a state, then records that it already holds."""
    once, twice = RecordModel(), RecordModel()
    once.apply_all(0, records)
    twice.apply_all(0, records)
    twice.apply_all(0, records[cut:])
    assert twice.keys == once.keys


@given(records=st.lists(group_changes | cluster_changes, max_size=20))
@settings(max_examples=examples(200), deadline=None)
def test_keyed_records_are_the_model(records: list[Record]) -> None:
    keyed, model, compacted = KeyedRecords(), RecordModel(), RecordModel()
    for record in records:
        keyed.apply(record)
        model.apply(0, record)
    compacted.apply_all(0, keyed.records())
    assert compacted.keys == model.keys


@given(records=st.lists(group_changes | cluster_changes, max_size=5))
@settings(max_examples=examples(200), deadline=None)
def test_records_come_out_of_the_codec_as_they_went_in(records: list[Record]) -> None:
    item = ShardAppend(0, 7, [Batch(records, [])], lambda _: None)
    payload = decode_payload(encode_payload(Stamp("log", 5, 4), 3, [item]))
    assert (payload.log_id, payload.ts_ms, payload.clock_ms, payload.folded_row) == ("log", 5, 4, 3)
    assert [list(batch.records) for batch in payload.items[0].batches] == [records]
    assert [decode_record(encode_record(record)) for record in records] == records


@given(
    group=st.builds(
        SavedGroup,
        group_ids,
        st.none() | group_records,
        st.dictionaries(topics, st.dictionaries(partitions, saved_offsets, max_size=3), max_size=3),
    )
)
@settings(max_examples=examples(200), deadline=None)
def test_a_saved_group_comes_out_of_the_codec_as_it_went_in(group: SavedGroup) -> None:
    assert decode_saved(encode_saved(group)) == group
