"""What every backend promises (storage/base.py), held against each of them."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.consumer_records import (
    AssignedFields,
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
from groupkeeper.coordinator.core.events import GroupCreated, MemberJoin, RebalanceStart
from groupkeeper.coordinator.core.records import (
    AdoptionMark,
    GroupConfigs,
    GroupRecord,
    GroupRemoved,
    JournalPosition,
    ListenerPort,
    OffsetsRemoved,
    PartitionEnd,
    PendingEnded,
    Record,
    SavedGroup,
    SavedOffset,
    TopicRecord,
    TopicRemoved,
    UpstreamId,
)
from groupkeeper.storage.base import Batch, StorageError, StoreIdentity, StoreRefused
from groupkeeper.storage.event_log.store_names import parse_store_name
from tests.helpers.core.records import TOPIC_ID, commit, group_record, pending
from tests.helpers.storage.storage_owner import IDENTITY, SHARDS
from tests.storage.conftest import Store

EVERY_KIND_OF_RECORD: list[tuple[int, list[Record]]] = [
    (-1, [TopicRecord("orders", TOPIC_ID, 12), TopicRecord("gone", "x", 1)]),
    (0, [group_record("g"), commit("g", 10, partitions=3, metadata="\u00e9\u0000\U0001f600")]),
    (0, [commit("simple", 5, expire_time_ms=99), commit("g", 11, topic="a.b'c\"d")]),
    (1, [group_record("other", members=2), PartitionEnd(TOPIC_ID, 0, 500)]),
    (1, [commit("doomed", 1), group_record("doomed")]),
    (1, [GroupRemoved("doomed"), PartitionEnd(TOPIC_ID, 1, 7)]),
    (0, [OffsetsRemoved("g", [("orders", 1), ("none", 9)])]),
    (-1, [TopicRemoved("gone"), TopicRecord("orders", TOPIC_ID, 24)]),
    (1, [PartitionEnd(TOPIC_ID, 1, -1)]),
    (-1, [GroupConfigs("g", {"a.b": "1", "c'd": "\u00e9"}), GroupConfigs("doomed", {"a": ""})]),
    (
        -1,
        [
            GroupConfigs("doomed", {}),
            GroupConfigs("never set", {}),
            GroupConfigs("\x00", {"a": "1"}),
        ],
    ),
    (
        -1,
        [
            ListenerPort(0, 9100),
            ListenerPort(7, 9101),
            ListenerPort(8, 9102),
            UpstreamId("upstream"),
        ],
    ),
    (-1, [ListenerPort(7, 9109), ListenerPort(8, 0), ListenerPort(9, 0)]),
    (2, [SavedGroup("imported", None, {"t": {0: SavedOffset(1, -1, "", 2, -1, "")}})]),
    (0, [GroupRecord("", None, 0, None, None, -1, ())]),
    (
        3,
        [
            ConsumerGroupRecord("c"),
            ConsumerGroupEpoch("c", 2, 2**63),
            ConsumerMember("c", ConsumerMemberFields("m", "i", subscribed_topic_names=("t", "u"))),
            ConsumerMember("c", ConsumerMemberFields("n", subscribed_topic_regex="t.*")),
            ConsumerMember("c", ConsumerMemberFields("gone")),
            ConsumerTarget("c", 2, 1_000, {"m": {TOPIC_ID: (0, 1)}, "n": {TOPIC_ID: (2,)}}),
            ConsumerCurrentAssignment("c", "m", AssignedFields(1, 2, 1, {TOPIC_ID: ((0, 2),)})),
            ResolvedPattern("c", "t.*", PatternTopics(("t",), 3, 1_000)),
        ],
    ),
    (3, [ConsumerMemberRemoved("c", "gone"), commit("c", 5)]),
    (2, [pending("p1"), pending("p2", metadata="\u00e9"), JournalPosition(TOPIC_ID, 7)]),
    (2, [pending("p2", offset=8), PendingEnded("p1"), PendingEnded("never set")]),
    (1, [pending("p1"), JournalPosition(TOPIC_ID, 9), JournalPosition("another", 0)]),
    (1, [AdoptionMark("doomed", "removed", 5), AdoptionMark("\x00", "begun", 6)]),
    (1, [AdoptionMark("\x00", "", 7), AdoptionMark("other", "begun", 8)]),
]


async def test_a_new_store_is_empty(store: Store) -> None:
    owner = await store.owner()
    assert owner.model.keys == {}
    assert store.events() == []


async def test_every_kind_of_record_comes_back_after_a_restart(store: Store) -> None:
    owner = await store.owner()
    for shard, records in EVERY_KIND_OF_RECORD:
        await owner.append(shard, records)
    again = await store.restarted(owner)
    assert again.model.keys == owner.model.keys
    assert len(again.model.keys) == 34


async def test_a_load_of_some_shards_yields_no_others(store: Store) -> None:
    owner = await store.owner()
    for shard, records in EVERY_KIND_OF_RECORD:
        await owner.append(shard, records)
    some = await owner.read([1])
    assert some.keys == {key: value for key, value in owner.model.keys.items() if key[1] == 1}


async def test_loading_again_and_again_changes_nothing(store: Store) -> None:
    owner = await store.owner()
    for shard, records in EVERY_KIND_OF_RECORD:
        await owner.append(shard, records)
    for _ in range(3):
        wanted = owner.model.keys
        await owner.reload()
        assert owner.model.keys == wanted
        owner = await store.restarted(owner)
        assert owner.model.keys == wanted


async def test_writing_goes_on_after_a_restart(store: Store) -> None:
    owner = await store.owner()
    for offset in range(5):
        await owner.append(0, [commit("g", offset)])
        owner = await store.restarted(owner)
    assert owner.model.keys["offset", 0, "g", "orders", 0][0] == 4
    assert [(event["seq"], event["kind"]) for event in store.events()] == [
        (1, "commit"),
        *((seq, kind) for n in range(4) for seq, kind in log_of_one_commit(2 + 2 * n)),
    ]


def log_of_one_commit(first_seq: int) -> list[tuple[int, str]]:
    return [(first_seq, "log_started"), (first_seq + 1, "commit")]


async def test_every_start_begins_a_new_log_that_names_the_one_before(store: Store) -> None:
    owner = await store.owner()
    await owner.append(0, [commit("g", 1)])
    await owner.append(0, [commit("g", 2)])
    owner = await store.restarted(owner)
    owner = await store.restarted(owner)  # nothing was written: no log
    shard, shard_of_log = (0, 0) if store.has_log_a_shard else (2, -1)
    await owner.append(shard, [commit("h", 3)])
    *old, started, new = store.events()
    assert started["log_id"] == new["log_id"] != old[0]["log_id"] == old[1]["log_id"]
    assert (started["kind"], started["shard"], started["seq"]) == (
        "log_started",
        shard_of_log,
        3,
    )
    assert started["previous_log_id"] == old[1]["log_id"]
    assert (started["previous_seq"], started["reason"]) == (2, "start")
    name = parse_store_name(started["store"])
    if store.has_log_a_shard:
        assert name.is_of_shard
    else:
        assert name.store == old[0]["log_id"], "the name that all logs share"
    assert (started["lease_epoch"], new["seq"]) == (owner.epoch, 4)


async def test_the_last_write_of_one_append_wins(store: Store) -> None:
    owner = await store.owner()
    first, second = commit("g", 1), commit("g", 2)
    owner.model.apply_all(0, [first, GroupRemoved("g"), second])
    batches = Batch([first, GroupRemoved("g")], []), Batch([second], [])
    assert not await owner.storage.append([owner.item(0, *batches)])
    again = await store.restarted(owner)
    assert again.model.keys == owner.model.keys
    assert again.model.keys["offset", 0, "g", "orders", 0][0] == 2


async def test_an_append_holds_many_shards(store: Store) -> None:
    owner = await store.owner()
    items = []
    for shard in (0, 1, 2, 3):
        record = commit(f"g{shard}", shard)
        owner.model.apply(shard, record)
        items.append(owner.item(shard, Batch([record], [])))
    assert not await owner.storage.append(items)
    assert (await store.restarted(owner)).model.keys == owner.model.keys


async def test_an_append_of_nothing_stores_nothing(store: Store) -> None:
    owner = await store.owner()
    await owner.append(0, [commit("g", 1)])
    assert not await owner.storage.append([owner.item(shard) for shard in SHARDS])
    assert not await owner.storage.append([])
    assert len(store.events()) == 1
    assert (await store.restarted(owner)).model.keys == owner.model.keys


async def test_what_an_older_lease_writes_is_refused_and_named(store: Store) -> None:
    owner = await store.owner()
    old = owner.epoch
    await owner.append(0, [commit("g", 1)])
    await owner.reload()
    assert owner.epoch > old
    late = [
        owner.item(shard, Batch([commit("g", 99)], [GroupCreated(group_id="g")]), fence=old)
        for shard in (0, 1)
    ]
    assert sorted(await owner.storage.append(late)) == [0, 1]
    await owner.append(0, [commit("g", 2)])
    assert (await store.restarted(owner)).model.keys == owner.model.keys
    assert [event["kind"] for event in store.events()] == ["commit", "commit"]


async def test_a_fenced_item_does_not_hold_up_the_others(store: Store) -> None:
    owner = await store.owner()
    await owner.reload()
    good = commit("good", 1)
    owner.model.apply(1, good)
    fenced = await owner.storage.append(
        [
            owner.item(0, Batch([commit("bad", 1)], []), fence=owner.epoch - 1),
            owner.item(1, Batch([good], [])),
        ]
    )
    assert list(fenced) == [0]
    assert (await store.restarted(owner)).model.keys == owner.model.keys


async def test_every_lease_has_a_newer_epoch_also_after_a_restart(store: Store) -> None:
    owner = await store.owner()
    epochs = [owner.epoch]
    for _ in range(2):
        await owner.reload()
        epochs.append(owner.epoch)
        owner = await store.restarted(owner)
        epochs.append(owner.epoch)
    assert epochs == sorted(set(epochs))


async def test_renew_tells_the_leases_that_are_lost(store: Store) -> None:
    owner = await store.owner()
    old = await owner.storage.acquire(SHARDS, owner.name)
    assert list(await owner.storage.renew(old.values())) == []
    new = await owner.storage.acquire(SHARDS, owner.name)
    assert sorted(await owner.storage.renew(old.values())) == sorted(SHARDS)
    assert list(await owner.storage.renew(new.values())) == []
    await owner.storage.release(new.values())


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        (StoreIdentity("another", IDENTITY.shards), "'test-cluster'.*'another'"),
        (StoreIdentity(IDENTITY.cluster_id, 50), "4 shards.* 50"),
    ],
)
async def test_a_store_of_another_identity_is_refused_in_one_line(
    store: Store, identity: StoreIdentity, words: str
) -> None:
    owner = await store.owner()
    await owner.append(0, [commit("g", 1)])
    await owner.storage.close()
    storage = store.make()
    with pytest.raises(StoreRefused, match=words) as refusal:
        await storage.open(identity)
    assert "\n" not in str(refusal.value)
    assert (await store.owner()).model.keys == owner.model.keys


async def test_a_second_opener_is_refused_while_the_first_is_there(store: Store) -> None:
    owner = await store.owner()
    with pytest.raises(StoreRefused, match="in use"):
        await store.make().open(IDENTITY)
    await owner.append(0, [commit("g", 1)])
    await store.restarted(owner)


async def test_a_closed_store_takes_nothing_and_closes_twice(store: Store) -> None:
    owner = await store.owner()
    await owner.storage.close()
    await owner.storage.close()
    with pytest.raises(StorageError):
        await owner.storage.acquire(SHARDS, "owner")
    with pytest.raises(StorageError):
        await owner.append(0, [commit("g", 1)])


async def test_a_step_of_the_size_that_the_limits_allow_is_stored(store: Store) -> None:
    owner = await store.owner()
    size = owner.storage.limits.max_step_bytes
    big = commit("g", 1, metadata="x" * (size - 1_000))
    await owner.append(0, [big])
    again = await store.restarted(owner)
    assert again.model.keys == owner.model.keys


async def test_stats_are_plain_numbers(store: Store) -> None:
    owner = await store.owner()
    await owner.append(0, [commit("g", 1)], [GroupCreated(group_id="g")])
    stats = owner.storage.stats()
    assert stats["last_seq"] == 2
    assert all(isinstance(value, int | float) for value in stats.values())


async def test_after_a_clean_end_there_is_nothing_to_check(store: Store) -> None:
    owner = await store.restarted(await store.owner())
    assert await owner.storage.check_after_unclean_end() is None


# --- folding -------------------------------------------------------------------------------------


async def test_a_load_after_any_number_of_folds_yields_the_same(store: Store) -> None:
    owner = await store.owner()
    for shard, records in EVERY_KIND_OF_RECORD:
        await owner.append(shard, records)
        await owner.fold_all()
        assert owner.storage.unfolded() == 0
        assert (await owner.read()).keys == owner.model.keys
        await owner.reload()
    assert (await store.restarted(owner)).model.keys == owner.model.keys


async def test_a_group_that_was_folded_and_then_removed_stays_away(store: Store) -> None:
    owner = await store.owner()
    await owner.append(0, [commit("g", 1), group_record("g")])
    await owner.fold_all()
    await owner.append(0, [GroupRemoved("g")])
    assert (await owner.read()).keys == {}
    await owner.fold_all()
    assert (await store.restarted(owner)).model.keys == {}


# --- events --------------------------------------------------------------------------------------


async def test_events_are_numbered_without_a_gap_in_the_order_of_the_append(store: Store) -> None:
    owner = await store.owner()
    join = MemberJoin(group_id="g", member_id="m", protocols=["range"])
    await owner.append(0, [group_record("g")], [GroupCreated(group_id="g"), join])
    await owner.append(1, [commit("h", 1)], [GroupCreated(group_id="h")])
    await owner.append(2, [], [RebalanceStart(group_id="i", reason="join", members=2)])
    events = store.events()
    assert [(event["kind"], event["group"]) for event in events] == [
        ("group_created", "g"),
        ("member_join", "g"),
        ("group_created", "h"),
        ("commit", "h"),
        ("rebalance_start", "i"),
    ]
    seqs = [1, 2, 1, 2, 1] if store.has_log_a_shard else [1, 2, 3, 4, 5]
    assert [event["seq"] for event in events] == seqs
    assert {event["lease_epoch"] for event in events} == {owner.epoch}
    assert [event["shard"] for event in events] == [0, 0, 1, 1, 2]
    logs = len({event["log_id"] for event in events})
    assert logs == (3 if store.has_log_a_shard else 1)


async def test_a_commit_is_one_event_with_its_partitions(store: Store) -> None:
    owner = await store.owner()
    await owner.append(0, [commit("g", 7, partitions=2, metadata="note")])
    (event,) = store.events()
    log_id = event.pop("log_id")
    assert isinstance(log_id, str)
    assert event == {
        "seq": 1,
        "ts_ms": 1_700_000_000_000,
        "shard": 0,
        "lease_epoch": owner.epoch,
        "kind": "commit",
        "group": "g",
        "group_type": "classic",
        "generation": 3,
        "member_id": f"consumer-1-{'0' * 36}",
        "instance_id": None,
        "client_id": "consumer-1",
        "client_host": "/127.0.0.1",
        "principal": "User:ANONYMOUS",
        "api": "OffsetCommit",
        "commit_time_ms": 1_700_000_000_007,
        "expire_time_ms": -1,
        "topics": [
            {
                "topic": "orders",
                "topic_id": TOPIC_ID,
                "partitions": [
                    {
                        "partition": number,
                        "offset": 7,
                        "previous_offset": -1,
                        "leader_epoch": 0,
                        "metadata": "note",
                    }
                    for number in range(2)
                ],
            }
        ],
    }


async def test_time_stamps_never_decrease_and_keep_what_the_clock_said(store: Store) -> None:
    owner = await store.owner()
    start = store.clock.now_ms
    for step_ms in (0, 50, -9_000, 9_000):
        store.clock.now_ms += step_ms
        await owner.append(0, [commit("g", 1)])
    events = store.events()
    assert [event["ts_ms"] - start for event in events] == [0, 50, 50, 50]
    assert [event.get("clock_ms") for event in events] == [None, None, start - 8_950, None]
    assert len({event["log_id"] for event in events}) == 1


async def test_a_clock_that_steps_far_back_starts_a_new_log(store: Store) -> None:
    owner = await store.owner()
    await owner.append(0, [commit("g", 1)])
    store.clock.now_ms -= 10_001
    await owner.append(0, [commit("g", 2)])
    await owner.append(0, [commit("g", 3)])
    first, started, second, third = store.events()
    assert first["log_id"] != started["log_id"] == second["log_id"] == third["log_id"]
    assert second["ts_ms"] == started["ts_ms"] == store.clock.now_ms
    assert [event["seq"] for event in (first, started, second, third)] == [1, 2, 3, 4]
    before = started["previous_log_id"], started["previous_seq"], started["reason"]
    assert before == (first["log_id"], 1, "clock_set_back")
