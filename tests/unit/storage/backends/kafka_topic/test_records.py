"""Records become messages of a compacted topic, and come back from the newest ones."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

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
    SavedConsumerMember,
)
from groupkeeper.coordinator.core.records import (
    AdoptedTopic,
    CommittedTopic,
    GroupRecord,
    GroupRemoved,
    OffsetsAdopted,
    OffsetsCommitted,
    OffsetsRemoved,
    PartitionEnd,
    Record,
    SavedGroup,
    SavedOffset,
    SavedOffsets,
    TopicRecord,
)
from groupkeeper.protocol import offsets_topic
from groupkeeper.storage.backends.kafka_topic import own
from groupkeeper.storage.backends.kafka_topic.loaded import KEYS_A_TURN, LoadedShard, load_shard
from groupkeeper.storage.backends.kafka_topic.written import ShardKeys
from groupkeeper.storage.base import Batch, ShardAppend, StoreRefused
from tests.helpers.core.record_model import RecordModel
from tests.helpers.core.records import TOPIC_ID, commit, group_record
from tests.helpers.runtime.virtual_loop import turns

CLASSIC_FIELDS = ConsumerMemberFields(
    "old",
    "i",
    "rack",
    "client",
    "/host",
    1_000,
    ("t", "u"),
    "t.*",
    "uniform",
    ClassicSession(45_000, (ClassicProtocol("range", b"\x00\xff"), ClassicProtocol("x", b""))),
)
WHOLE_GROUP = ConsumerGroupRecord(
    "c",
    7,
    2**64 - 1,
    6,
    1_000,
    (("t",),),
    (
        SavedConsumerMember(
            ConsumerMemberFields("m"),
            0,
            AssignedFields(2, 5, 4, {TOPIC_ID: ((0, 3), (1, 5))}, {TOPIC_ID: ((2, 1),)}),
            {TOPIC_ID: (0, 1)},
        ),
    ),
    {"t.*": PatternTopics(("t", "tt"), 2**40, -1)},
)


class Topic:
    """One partition of a compacted topic, and the records that were written to it."""

    def __init__(self) -> None:
        self.newest: dict[bytes, bytes] = {}
        self.keys = ShardKeys()
        self.model = RecordModel()

    def append(self, *records: Record) -> None:
        self.model.apply_all(0, records)
        item = ShardAppend(0, 1, [Batch(records, [])], partial(self.model.saved, 0))
        for key, value in self.keys.messages(item):
            if value is None:
                del self.newest[key]  # only a key that is set is cleared
            else:
                self.newest[key] = value

    def reload(self) -> None:
        """Read the partition, as after a failure. It must have everything that was written."""
        loaded = loaded_of(self.newest)
        found = RecordModel()
        found.apply_all(0, loaded.records())
        assert found.keys == self.model.keys
        self.keys = loaded.keys


def loaded_of(newest: dict[bytes, bytes]) -> LoadedShard:
    return asyncio.run(load_shard(newest, "t-0"))


STEPS: list[list[Record]] = [
    [
        commit("g", 10, partitions=3, metadata="\u00e9\u0000\U0001f600"),
        group_record("g", members=3),
    ],
    [commit("simple", 5, expire_time_ms=99)],
    [commit("long", 5, metadata="\u00e9" * 20_000)],
    [OffsetsRemoved("simple", [("orders", 0), ("none", 9)])],
    [commit("g", 11), OffsetsRemoved("g", [("orders", 1)])],
    [GroupRecord("", None, 0, None, None, -1, ()), GroupRecord("", "", 2, "", "", 3, ())],
    [commit("x" * 32_767, 1), GroupRecord("bare", None, 0, None, None, -1, ())],
    [WHOLE_GROUP, commit("c", 3)],
    [
        ConsumerGroupEpoch("c", 8, 2**63),
        ConsumerMember("c", CLASSIC_FIELDS),
        ConsumerTarget("c", 8, 2_000, {"old": {TOPIC_ID: (2,)}, "m": {}}),
        ConsumerCurrentAssignment("c", "old", AssignedFields(0, 8, 7)),
        ResolvedPattern("c", "u.*", PatternTopics((), 0, 0)),
    ],
    [ConsumerMemberRemoved("c", "m"), ResolvedPattern("c", "t.*", None)],
    [ConsumerGroupEpoch("none", 1, 1), ConsumerGroupEpoch("g", 1, 1)],
    [GroupRecord("c", "consumer", 9, None, None, 1, ())],
    [WHOLE_GROUP],
    [GroupRemoved("c"), GroupRemoved("never there")],
    [SavedGroup("g", None, {"t": {0: SavedOffset(1, -1, "", 2, -1, "no uuid")}})],
    [SavedGroup("nothing", None, {}), TopicRecord("t", "x", 1), PartitionEnd("t", 0, 7)],
    [PartitionEnd("t", 0, -1)],
]


def test_every_record_comes_back_after_each_step():
    topic = Topic()
    for step in STEPS:
        topic.append(*step)
        topic.reload()
    assert len(topic.model.keys) == 11


def test_a_removed_group_leaves_no_key():
    topic = Topic()
    topic.append(commit("g", 1, partitions=5), WHOLE_GROUP, commit("c", 1), group_record("g"))
    topic.append(GroupRemoved("g"), GroupRemoved("c"))
    assert topic.newest == {}


def test_an_adopted_offset_keeps_its_other_values():
    topic = Topic()
    rows = [(0, 7, -1, 3, "note"), (1, 8, -1, 3, "")]
    topic.append(
        OffsetsCommitted("g", -1, "", None, "", "", "", 5, 9, [CommittedTopic("t", "", rows)])
    )
    topic.append(OffsetsAdopted("g", [AdoptedTopic("t", TOPIC_ID, [(0, 7), (9, 9)])]))
    topic.reload()
    assert topic.model.keys["offset", 0, "g", "t", 0] == (7, 3, "note", 5, 9, TOPIC_ID)


def test_the_reader_of_kafkas_own_topic_reads_ours():
    topic = Topic()
    topic.append(group_record("g", members=2), commit("g", 10, metadata="m", expire_time_ms=99))
    found = {offsets_topic.decode_key(key): value for key, value in topic.newest.items()}
    value = offsets_topic.decode_offset(found[offsets_topic.OffsetKey("g", "orders", 0)])
    assert value == offsets_topic.OffsetValue(10, "m", 1_700_000_000_010, 0, topic_id=TOPIC_ID)
    group = offsets_topic.decode_group(found[offsets_topic.GroupKey("g")])
    assert (group.protocol_type, group.generation, group.leader) == ("consumer", 1, "m-0")
    assert [member.group_instance_id for member in group.members] == [None, "static"]


@pytest.mark.parametrize("cut", [3, 10, -1])
def test_a_damaged_value_is_refused_with_its_key(cut):
    topic = Topic()
    topic.append(commit("g", 1))
    ((key, value),) = topic.newest.items()
    with pytest.raises(StoreRefused, match=r"^t-0: .*'g|^t-0: key b.*orders"):
        [*loaded_of({key: value[:cut]}).records()]


def test_a_damaged_group_is_refused_with_its_name():
    topic = Topic()
    topic.append(WHOLE_GROUP)
    newest = {key: value for key, value in topic.newest.items() if key[1] != 6}
    with pytest.raises(StoreRefused, match="t-0: group 'c'"):
        [*loaded_of(newest).records()]


def test_the_end_of_the_log_comes_back():
    end = own.ShardLogEnd("log", 5, 6)
    loaded = loaded_of({own.LOG_END_KEY: own.encode_end(end)})
    assert loaded.log_end == end
    assert [*loaded.records()] == []


async def test_other_work_goes_on_while_a_large_shard_is_read():
    topic = Topic()
    topic.append(*(commit("g", 1, topic=f"t{n}", partitions=KEYS_A_TURN) for n in range(4)))
    reading = asyncio.ensure_future(load_shard(topic.newest, "t-0"))
    passed = 0
    while not reading.done():
        passed += 1
        await turns()
    assert passed >= 4


def test_a_group_with_many_offsets_comes_in_parts():
    topic = Topic()
    topic.append(
        group_record("g", members=3),
        *(commit("g", n, topic=f"t{n}", partitions=5_000) for n in range(3)),
    )
    first, *parts = loaded_of(topic.newest).records()
    assert isinstance(first, SavedGroup)
    assert first.offsets == {}
    assert len(parts) > 1
    assert {type(part) for part in parts} == {SavedOffsets}
    topic.reload()
