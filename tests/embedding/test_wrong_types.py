"""What a host passes in is checked before it can reach a store."""

from __future__ import annotations

import pytest

from coordinator.messages import (
    JoinGroupRequest,
    OffsetCommitData,
    OffsetCommitRequest,
    ProtocolMetadata,
)
from coordinator.offset_manager import OffsetManager
from coordinator.service import GroupCoordinator
from storage.memory import MemoryOffsetStorage
from storage.sqlite import SqliteOffsetStorage


@pytest.mark.parametrize("offset", [42.0, 1.5, True, "12"])
async def test_an_offset_that_is_no_integer_is_refused_and_the_store_stays_readable(
    tmp_path, offset
):
    path = tmp_path / "groups.db"
    coordinator = GroupCoordinator(SqliteOffsetStorage(path))
    await coordinator.start()
    manager = OffsetManager(coordinator)
    await manager.commit_offset("g", "orders", 0, 7)
    with pytest.raises(TypeError, match=r"OffsetCommit: Expected `int`, got .* at `\$\.topics"):
        await manager.commit_offset("g", "orders", 0, offset)
    await coordinator.stop()
    again = GroupCoordinator(SqliteOffsetStorage(path))
    await again.start()
    assert await OffsetManager(again).get_offset("g", "orders", 0) == 7
    await again.stop()


@pytest.fixture
async def in_memory():
    coordinator = GroupCoordinator(MemoryOffsetStorage())
    await coordinator.start()
    yield coordinator
    await coordinator.stop()


@pytest.mark.parametrize(
    "data",
    [OffsetCommitData(7, "", None), OffsetCommitData(7, b"", -1)],
    ids=["no epoch", "bytes for text"],
)
async def test_what_comes_with_an_offset_is_checked_too(in_memory, data):
    with pytest.raises(TypeError, match="OffsetCommit: Expected"):
        await in_memory.commit_offsets(
            OffsetCommitRequest(group_id="g", offsets={"orders": {0: data}})
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"session_timeout_ms": 10_000.0},
        {"rebalance_timeout_ms": 10_000.5},
        {"protocols": [ProtocolMetadata("range", "text")]},
    ],
    ids=["session timeout", "rebalance timeout", "metadata"],
)
async def test_a_join_is_checked(in_memory, wrong):
    request = {"group_id": "g", "protocols": [ProtocolMetadata("range")]} | wrong
    with pytest.raises(TypeError, match="JoinGroup: Expected"):
        await in_memory.join_group(JoinGroupRequest(**request))


@pytest.mark.parametrize("kind", [bytearray, memoryview])
async def test_a_buffer_is_as_good_as_bytes(in_memory, kind):
    """A broker holds slices of what it has received."""
    joined = await in_memory.join_group(
        JoinGroupRequest(
            group_id="g",
            protocols=[ProtocolMetadata("range", kind(b"subscription"))],
            requires_known_member_id=False,
        )
    )
    (member,) = joined.members
    assert (type(member.metadata), member.metadata) == (bytes, b"subscription")
