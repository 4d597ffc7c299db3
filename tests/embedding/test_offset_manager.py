"""OffsetManager over each storage."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.embed.messages import OffsetFetchRequest
from groupkeeper.coordinator.embed.offset_manager import OffsetManager
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from tests.embedding.conftest import MakeStorage
from tests.helpers.runtime.embedded import join, sync


@pytest.fixture
def manager(coordinator: GroupCoordinator) -> OffsetManager:
    return OffsetManager(coordinator)


async def test_what_is_committed_is_got(manager: OffsetManager) -> None:
    assert await manager.get_offset("g", "orders", 0) is None
    await manager.commit_offset("g", "orders", 0, 7, "note")
    await manager.commit_offset("g", "orders", 1, 8)
    await manager.commit_offset("g", "payments", 0, 0)
    assert await manager.get_offset("g", "orders", 0) == 7
    assert await manager.get_all_offsets("g") == {"orders": {0: 7, 1: 8}, "payments": {0: 0}}
    assert await manager.get_all_offsets("absent") == {}


async def test_a_negative_offset_comes_back_as_it_is_and_one_of_minus_one_says_none(
    make_storage: MakeStorage,
) -> None:
    for is_restarted in (False, True):
        coordinator = GroupCoordinator(make_storage(), CoordinatorConfig(shards=4))
        await coordinator.start()
        manager = OffsetManager(coordinator)
        if not is_restarted:
            await manager.commit_offset("g", "orders", 0, -5)
            await manager.commit_offset("g", "orders", 1, -1)
            await manager.commit_offset("g", "payments", 0, -1)
        assert await manager.get_offset("g", "orders", 0) == -5
        assert await manager.get_offset("g", "orders", 1) is None
        assert await manager.get_all_offsets("g") == {"orders": {0: -5}}
        await coordinator.stop()


async def test_a_reset_also_deletes_what_was_committed_as_none(
    coordinator: GroupCoordinator, manager: OffsetManager
) -> None:
    await manager.commit_offset("g", "orders", 1, -1)
    await manager.reset_offsets("g")
    fetched = await coordinator.fetch_offsets(OffsetFetchRequest(group_id="g"))
    assert fetched.offsets == {}


async def test_a_reset_deletes_all_offsets_of_the_group(manager: OffsetManager) -> None:
    for group_id in ("g", "h"):
        await manager.commit_offset(group_id, "orders", 0, 7)
        await manager.commit_offset(group_id, "payments", 3, 7)
    await manager.reset_offsets("g")
    assert await manager.get_all_offsets("g") == {}
    assert await manager.get_all_offsets("h") == {"orders": {0: 7}, "payments": {3: 7}}
    await manager.reset_offsets("g")
    await manager.reset_offsets("absent")


async def test_members_keep_their_offsets_to_themselves(
    coordinator: GroupCoordinator, manager: OffsetManager
) -> None:
    await manager.commit_offset("g", "orders", 0, 7)
    await manager.commit_offset("g", "payments", 0, 8)
    await sync(coordinator, await join(coordinator))
    with pytest.raises(GroupError) as raised:
        await manager.commit_offset("g", "orders", 0, 9)
    assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(GroupError) as raised:
        await manager.reset_offsets("g")
    assert raised.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert await manager.get_all_offsets("g") == {"orders": {0: 7}, "payments": {0: 8}}


@pytest.mark.parametrize(("offset", "is_valid"), [(4, False), (5, True), (9, True), (10, False)])
def test_an_offset_is_valid_within_both_ends(
    manager: OffsetManager, offset: int, is_valid: bool
) -> None:
    if is_valid:
        manager.validate_offset(offset, 5, 9)
        return
    with pytest.raises(GroupError, match=f"offset {offset} is not within 5 and 9") as raised:
        manager.validate_offset(offset, 5, 9)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
