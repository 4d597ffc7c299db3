"""Every name of the in-process API, over each storage that a host may bring."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from groupkeeper.coordinator.core.assignors.types import TopicPartition
from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.embed.group_coordinator import LISTED_AT_ONCE, GroupCoordinator
from groupkeeper.coordinator.embed.group_metadata import MemberState
from groupkeeper.coordinator.embed.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberAssignmentData,
    OffsetCommitData,
    OffsetFetchRequest,
    ProtocolMetadata,
    SyncGroupRequest,
)
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.protocol.consumer_protocol import Subscription, encode_subscription
from groupkeeper.storage.backends.host import PersistentOffsetStorage
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from groupkeeper.storage.base import StoreRefused
from tests.embedding.conftest import MakeStorage
from tests.helpers.runtime.embedded import (
    ORDERS,
    a_commit,
    beat,
    heartbeat_until_rebalance,
    join,
    sync,
    two_members,
)
from tests.helpers.storage.dict_store import DictStore


async def test_a_member_joins_syncs_and_lives(coordinator: GroupCoordinator) -> None:
    joined = await join(coordinator)
    assert joined.error_code is ErrorCode.NONE
    assert (joined.generation_id, joined.protocol_name) == (1, "range")
    assert joined.member_id.startswith("app-")
    assert joined.is_leader
    assert [m.member_id for m in joined.members] == [joined.member_id]
    assert await sync(coordinator, joined) == [0, 1, 2, 3, 4, 5]
    assert await beat(coordinator, joined) is ErrorCode.NONE


async def test_a_second_member_makes_the_group_rebalance(coordinator: GroupCoordinator) -> None:
    first, second = await two_members(coordinator)
    assert first.generation_id == second.generation_id == 2
    assert (first.is_leader, second.is_leader) == (True, False)
    assert second.members == []
    halves = await asyncio.gather(sync(coordinator, first), sync(coordinator, second))
    assert sorted(halves) == [[0, 1, 2], [3, 4, 5]]


async def test_a_member_that_leaves_is_gone(coordinator: GroupCoordinator) -> None:
    joined = await join(coordinator)
    await sync(coordinator, joined)
    request = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
    (await coordinator.leave_group(request)).raise_for_error()
    assert (await coordinator.leave_group(request)).error_code is ErrorCode.UNKNOWN_MEMBER_ID
    assert await beat(coordinator, joined) is ErrorCode.UNKNOWN_MEMBER_ID
    group = await coordinator.get_group("g")
    assert group is not None
    assert group.state is GroupState.EMPTY


async def test_an_error_is_in_the_response_and_raised_on_demand(
    coordinator: GroupCoordinator,
) -> None:
    heartbeat = HeartbeatRequest(group_id="absent", generation_id=1, member_id="m")
    response = await coordinator.heartbeat(heartbeat)
    assert response.error_code is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(GroupError) as raised:
        response.raise_for_error()
    assert raised.value.code == 25
    protocols = [ProtocolMetadata("range")]
    bad = JoinGroupRequest(group_id="g", session_timeout_ms=1, protocols=protocols)
    refused = await coordinator.join_group(bad)
    assert refused.error_code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert (refused.generation_id, refused.members) == (-1, [])
    joined = await join(coordinator)
    stale = SyncGroupRequest(group_id="g", generation_id=9, member_id=joined.member_id)
    assert (await coordinator.sync_group(stale)).error_code is ErrorCode.ILLEGAL_GENERATION


async def test_a_static_member_keeps_its_generation_when_it_comes_back(
    coordinator: GroupCoordinator,
) -> None:
    joined = await join(coordinator, group_instance_id="one")
    assert joined.member_id.startswith("one-")
    await sync(coordinator, joined)
    back = await join(coordinator, group_instance_id="one")
    assert back.generation_id == joined.generation_id
    assert back.member_id != joined.member_id
    assert await beat(coordinator, joined) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_newcomer_may_ask_for_its_id_first(coordinator: GroupCoordinator) -> None:
    handed = await join(coordinator, requires_known_member_id=True)
    assert handed.member_id.startswith("app-")
    assert handed.error_code is ErrorCode.MEMBER_ID_REQUIRED
    joined = await join(coordinator, handed.member_id, requires_known_member_id=True)
    assert joined.error_code is ErrorCode.NONE
    assert joined.member_id == handed.member_id


async def test_commits_are_judged_by_partition_and_read_back(
    coordinator: GroupCoordinator,
) -> None:
    offsets = {
        "orders": {0: OffsetCommitData(7, "note", 3), 1: OffsetCommitData(8)},
        "payments": {0: OffsetCommitData(9, "x" * 5_000)},
    }
    response = await coordinator.commit_offsets(a_commit(0, offsets=offsets))
    assert response.errors == {
        "orders": {0: ErrorCode.NONE, 1: ErrorCode.NONE},
        "payments": {0: ErrorCode.OFFSET_METADATA_TOO_LARGE},
    }
    assert response.error_code is ErrorCode.OFFSET_METADATA_TOO_LARGE
    everything = await coordinator.fetch_offsets(OffsetFetchRequest(group_id="g"))
    assert {
        t: {p: d.offset for p, d in rows.items()} for t, rows in everything.offsets.items()
    } == {"orders": {0: 7, 1: 8}}
    some = OffsetFetchRequest(group_id="g", topics={"orders": [0, 5], "none": [1]})
    rows = (await coordinator.fetch_offsets(some)).offsets
    assert (rows["orders"][0].metadata, rows["orders"][0].leader_epoch) == ("note", 3)
    assert rows["orders"][5].offset == rows["none"][1].offset == -1
    assert await coordinator.get_committed_offset("g", "orders", 1) == 8
    assert await coordinator.get_committed_offset("g", "orders", 2) is None
    assert await coordinator.get_committed_offset("absent", "orders", 2) is None


async def test_a_commit_of_a_stale_generation_is_refused(coordinator: GroupCoordinator) -> None:
    joined = await join(coordinator)
    await sync(coordinator, joined)
    good = a_commit(4, member_id=joined.member_id, generation_id=1)
    assert (await coordinator.commit_offsets(good)).error_code is ErrorCode.NONE
    stale = a_commit(5, member_id=joined.member_id, generation_id=0)
    assert (await coordinator.commit_offsets(stale)).errors == {
        "orders": {0: ErrorCode.ILLEGAL_GENERATION}
    }
    absent = a_commit(5, group_id="absent", member_id="m", generation_id=3)
    assert (await coordinator.commit_offsets(absent)).error_code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_survive_a_restart_and_groups_as_the_storage_promises(
    make_storage: MakeStorage,
) -> None:
    before = GroupCoordinator(make_storage(), CoordinatorConfig(shards=4))
    await before.start()
    joined = await join(before)
    await sync(before, joined)
    await before.commit_offsets(a_commit(7, member_id=joined.member_id, generation_id=1))
    await before.stop()
    after = GroupCoordinator(make_storage(), CoordinatorConfig(shards=4))
    await after.start()
    assert await after.get_committed_offset("g", "orders", 0) == 7
    weaker = isinstance(after._storage, PersistentOffsetStorage)
    alive = await beat(after, joined)
    assert alive is (ErrorCode.UNKNOWN_MEMBER_ID if weaker else ErrorCode.NONE)
    await after.stop()


async def test_a_group_is_shown_with_all_that_is_known_of_it(
    coordinator: GroupCoordinator,
) -> None:
    assert await coordinator.get_group("g") is None
    first, second = await two_members(coordinator)
    group = await coordinator.get_group("g")
    assert group is not None
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert {m.state for m in group.members.values()} == {MemberState.AWAITING_SYNC}
    await asyncio.gather(sync(coordinator, first), sync(coordinator, second))
    group = await coordinator.get_group("g")
    assert group is not None
    assert (group.group_id, group.state, group.generation_id) == ("g", "Stable", 2)
    assert (group.protocol_type, group.protocol_name) == ("consumer", "range")
    assert group.leader_id == first.member_id
    assert (group.session_timeout_ms, group.rebalance_timeout_ms) == (45_000, 60_000)
    member = group.members[second.member_id]
    assert (member.state, member.client_id) == (MemberState.STABLE, "app")
    assert member.subscription == ["orders"]
    assert member.assignment is not None
    assert len(member.assignment.partitions["orders"]) == 3
    assert member.join_time_ms is not None
    assert member.last_heartbeat_ms is not None
    assert 0 <= member.last_heartbeat_ms - member.join_time_ms < 60_000
    assert abs(group.state_timestamp_ms - member.join_time_ms) < 60_000


async def test_a_rebalance_shows_who_came_and_who_is_awaited(
    coordinator: GroupCoordinator,
) -> None:
    first = await join(coordinator)
    await sync(coordinator, first)
    second = asyncio.create_task(join(coordinator))
    await heartbeat_until_rebalance(coordinator, first)
    group = await coordinator.get_group("g")
    assert group is not None
    assert group.state is GroupState.PREPARING_REBALANCE
    states = {m.member_id: m.state for m in group.members.values()}
    assert states.pop(first.member_id) is MemberState.LEAVING
    assert list(states.values()) == [MemberState.JOINING]
    with pytest.raises(GroupError) as raised:
        await coordinator.perform_assignment("g", ORDERS)
    assert raised.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    await join(coordinator, first.member_id)
    await second


async def test_groups_are_listed_and_deleted(coordinator: GroupCoordinator) -> None:
    assert await coordinator.list_groups() == []
    joined = await join(coordinator)
    await sync(coordinator, joined)
    await coordinator.commit_offsets(a_commit(1, group_id="simple"))
    listed = {group.group_id: group.state for group in await coordinator.list_groups()}
    assert listed == {"g": "Stable", "simple": "Empty"}
    assert await coordinator.delete_groups("simple", "g", "absent") == {
        "simple": ErrorCode.NONE,
        "g": ErrorCode.NON_EMPTY_GROUP,
        "absent": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert [group.group_id for group in await coordinator.list_groups()] == ["g"]
    assert await coordinator.get_committed_offset("simple", "orders", 0) is None


async def test_a_group_that_is_named_twice_is_deleted_once(
    coordinator: GroupCoordinator,
) -> None:
    await coordinator.commit_offsets(a_commit(1))
    assert list((await coordinator.delete_groups("g", "absent", "g")).items()) == [
        ("g", ErrorCode.NONE),
        ("absent", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


async def test_a_listing_has_every_one_of_many_groups_once(coordinator: GroupCoordinator) -> None:
    ids = {f"g{number}" for number in range(2 * LISTED_AT_ONCE + 1)}
    await asyncio.gather(*[coordinator.commit_offsets(a_commit(1, group_id=g)) for g in ids])
    listed = [group.group_id for group in await coordinator.list_groups()]
    assert sorted(listed) == sorted(ids)


async def test_offsets_are_deleted_by_partition(coordinator: GroupCoordinator) -> None:
    for partition in (0, 1):
        await coordinator.commit_offsets(a_commit(5, partition))
    assert await coordinator.delete_offsets("g", {"orders": [0]}) == {"orders": {0: ErrorCode.NONE}}
    assert await coordinator.get_committed_offset("g", "orders", 0) is None
    assert await coordinator.get_committed_offset("g", "orders", 1) == 5
    with pytest.raises(GroupError) as raised:
        await coordinator.delete_offsets("absent", {"orders": [0]})
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_partitions_are_assigned_with_what_the_group_has_chosen(
    coordinator: GroupCoordinator,
) -> None:
    first, second = await two_members(coordinator, "roundrobin")
    assignment = await coordinator.perform_assignment("g", ORDERS)
    dealt = [[partition for _, partition in parts] for parts in assignment.values()]
    assert sorted(dealt) == [[0, 2, 4], [1, 3, 5]]
    assert set(assignment) == {first.member_id, second.member_id}


async def test_a_sticky_assignment_starts_from_what_members_have(
    coordinator: GroupCoordinator,
) -> None:
    first, second = await two_members(coordinator, "sticky")
    # an assignment that no assignor would compute
    odd = {first.member_id: ORDERS[1:4], second.member_id: [ORDERS[0], *ORDERS[4:]]}
    leader, follower = (first, second) if first.is_leader else (second, first)
    request = SyncGroupRequest(
        group_id="g",
        generation_id=leader.generation_id,
        member_id=leader.member_id,
        assignments=[MemberAssignmentData.of(*each) for each in odd.items()],
    )
    (await coordinator.sync_group(request)).raise_for_error()
    await sync(coordinator, follower)
    again = asyncio.create_task(join(coordinator, first.member_id, assignor="sticky"))
    await heartbeat_until_rebalance(coordinator, second)
    await join(coordinator, second.member_id, assignor="sticky")
    await again
    assert await coordinator.perform_assignment("g", ORDERS) == odd
    one_more = [*ORDERS, TopicPartition("orders", 6)]
    grown = await coordinator.perform_assignment("g", one_more)
    assert all(set(odd[member]) <= set(grown[member]) for member in odd)


async def test_a_sticky_assignment_believes_newcomers_what_they_hold(
    coordinator: GroupCoordinator,
) -> None:
    owned = ([1, 2, 3], [0, 4, 5])

    async def enter(held: list[int], member_id: str = "") -> JoinGroupResponse:
        metadata = encode_subscription(
            Subscription(1, ["orders"], owned_partitions={"orders": held})
        )
        request = JoinGroupRequest(
            group_id="g", member_id=member_id, protocols=[ProtocolMetadata("sticky", metadata)]
        )
        return (await coordinator.join_group(request)).raise_for_error()

    first = await enter(owned[0])
    second = asyncio.create_task(enter(owned[1]))
    await heartbeat_until_rebalance(coordinator, first)
    await enter(owned[0], first.member_id)
    ids = (first.member_id, (await second).member_id)
    assert await coordinator.perform_assignment("g", ORDERS) == {
        member_id: [TopicPartition("orders", number) for number in held]
        for member_id, held in zip(ids, owned, strict=True)
    }


async def test_before_start_every_question_says_what_to_do(make_storage: MakeStorage) -> None:
    coordinator = GroupCoordinator(make_storage())
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    for call in (
        coordinator.heartbeat(heartbeat),
        join(coordinator),
        coordinator.commit_offsets(a_commit(5)),
        coordinator.get_committed_offset("g", "orders", 0),
        coordinator.get_group("g"),
        coordinator.list_groups(),
        coordinator.delete_groups("g"),
    ):
        with pytest.raises(RuntimeError, match=r"not started: await its start\(\) first"):
            await call


async def test_a_coordinator_has_one_life(make_storage: MakeStorage) -> None:
    coordinator = GroupCoordinator(make_storage())
    await coordinator.start()
    with pytest.raises(RuntimeError, match="the coordinator was started already: make another one"):
        await coordinator.start()
    (await coordinator.commit_offsets(a_commit(5))).raise_for_error()
    await coordinator.stop()
    with pytest.raises(RuntimeError, match="the coordinator was stopped already: make another one"):
        await coordinator.start()


async def test_a_coordinator_that_was_stopped_before_it_began_does_not_start() -> None:
    coordinator = GroupCoordinator(MemoryOffsetStorage())
    await coordinator.stop()
    with pytest.raises(RuntimeError, match="stopped already"):
        await coordinator.start()


async def test_a_start_that_did_not_get_the_store_may_be_tried_again(tmp_path: Path) -> None:
    first, second = (
        GroupCoordinator(SqliteOffsetStorage(tmp_path / "groups.db")) for _ in range(2)
    )
    await first.start()
    with pytest.raises(StoreRefused):
        await second.start()
    await first.stop()
    await second.start()
    (await second.commit_offsets(a_commit(5))).raise_for_error()
    await second.stop()


async def test_topics_may_be_names_with_their_numbers_of_partitions(
    make_storage: MakeStorage,
) -> None:
    coordinator = GroupCoordinator(make_storage(), topics={"orders": 2})
    await coordinator.start()
    assert (await coordinator.commit_offsets(a_commit(5, 1))).error_code is ErrorCode.NONE
    refused = await coordinator.commit_offsets(a_commit(5, 2))
    assert refused.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await coordinator.stop()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((None,), TypeError, r"storage must be an OffsetStorage, such as .*, not None"),
        (("groups.db",), TypeError, r"storage must be .* not 'groups.db'"),
        ((DictStore(),), TypeError, r"PersistentOffsetStorage\(your_store\), not <"),
        ((MemoryOffsetStorage(), {"shards": 4}), TypeError, "config must be a CoordinatorConfig"),
        ((MemoryOffsetStorage(), None, ["orders"]), TypeError, r"topics must be Topics\("),
        ((MemoryOffsetStorage(), None, {"orders": "12"}), TypeError, "the partitions of orders"),
        ((MemoryOffsetStorage(), None, {"orders": 2**31}), ValueError, "orders must be at most"),
        ((MemoryOffsetStorage(), None, {7: 12}), TypeError, "topic must be a string, not 7"),
        ((MemoryOffsetStorage(), None, {"a": 0}), ValueError, "topic 'a' of the config: Number of"),
        ((MemoryOffsetStorage(), None, {"a b": 1}), ValueError, "topic 'a b' .* only ASCII"),
        ((MemoryOffsetStorage(), None, {"__consumer.offsets": 1}), ValueError, "collides with"),
        ((MemoryOffsetStorage(), None, {"a": 99_999, "b": 2}), ValueError, "More than 100000"),
    ],
)
async def test_a_wrong_part_is_told_at_once(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        GroupCoordinator(*arguments)


async def test_what_cannot_be_assigned_says_why(coordinator: GroupCoordinator) -> None:
    for group_id, request, code in (
        ("absent", None, ErrorCode.GROUP_ID_NOT_FOUND),
        ("unheard", {"assignor": "unheard-of"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ("connect", {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        if request is not None:
            (await join(coordinator, group_id=group_id, **request)).raise_for_error()
        with pytest.raises(GroupError) as raised:
            await coordinator.perform_assignment(group_id, ORDERS)
        assert raised.value.code is code
    await coordinator.commit_offsets(a_commit(1))
    assert await coordinator.perform_assignment("g", ORDERS) == {}


async def test_after_stop_everything_is_refused(make_storage: MakeStorage) -> None:
    coordinator = GroupCoordinator(make_storage())
    await coordinator.start()
    await coordinator.stop()
    assert (await join(coordinator)).error_code is ErrorCode.NOT_COORDINATOR
    for call in (
        coordinator.get_group("g"),
        coordinator.fetch_offsets(OffsetFetchRequest(group_id="g")),
        coordinator.get_committed_offset("g", "orders", 0),
        coordinator.list_groups(),
        coordinator.perform_assignment("g", ORDERS),
    ):
        with pytest.raises(GroupError) as raised:
            await call
        assert raised.value.code is ErrorCode.NOT_COORDINATOR
    assert await coordinator.delete_groups("g") == {"g": ErrorCode.NOT_COORDINATOR}
