"""Consumer groups without a wire."""

from __future__ import annotations

from typing import Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.embed.consumer_messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.embed.group_metadata import MemberState
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.storage.backends.memory import MemoryOffsetStorage

CONFIG = CoordinatorConfig(shards=4, consumer_assignment_interval_ms=0)


class Member:
    def __init__(self, coordinator: GroupCoordinator, member_id: str) -> None:
        self._coordinator = coordinator
        self._member_id = member_id
        self.epoch = 0

    async def beat(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        values = {"group_id": "g", "member_id": self._member_id, "member_epoch": self.epoch}
        request = ConsumerGroupHeartbeatRequest(**{**values, **changes})
        answer = await self._coordinator.consumer_group_heartbeat(request)
        self.epoch = answer.member_epoch
        return answer

    async def join(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        joining = {"topics": ["orders"], "owned_partitions": {}, "rebalance_timeout_ms": 60_000}
        return await self.beat(**{**joining, **changes})


@pytest.fixture
async def coordinator() -> Any:
    coordinator = GroupCoordinator(MemoryOffsetStorage(), CONFIG, {"orders": 4})
    await coordinator.start()
    yield coordinator
    await coordinator.stop()


async def test_members_share_partitions_and_leave(coordinator: GroupCoordinator) -> None:
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    joined = (await a.join()).raise_for_error()
    assert (joined.member_epoch, joined.assignment) == (2, {"orders": [0, 1, 2, 3]})
    assert joined.heartbeat_interval_ms == 5_000
    assert (await b.join()).assignment == {}
    told = await a.beat()
    assert told.assignment == {"orders": [0, 1]}
    group = await coordinator.get_group("g")
    assert group is not None
    assert group.members["a"].state is MemberState.RECONCILING
    assert (await a.beat(owned_partitions=told.assignment)).assignment is None
    assert (await b.beat()).assignment == {"orders": [2, 3]}
    assert (await b.beat(member_epoch=-1)).member_epoch == -1
    assert (await a.beat()).assignment == {"orders": [0, 1, 2, 3]}


async def test_a_refusal_has_its_message(coordinator: GroupCoordinator) -> None:
    a = Member(coordinator, "a")
    wrong = await a.join(owned_partitions=None)
    assert wrong.error_code is ErrorCode.INVALID_REQUEST
    assert wrong.error_message == "TopicPartitions must be empty when (re-)joining."
    unknown = await a.beat(member_epoch=5)
    assert unknown.error_code is ErrorCode.GROUP_ID_NOT_FOUND
    with pytest.raises(GroupError):
        unknown.raise_for_error()


async def test_a_pattern_that_does_not_compile_is_refused(coordinator: GroupCoordinator) -> None:
    answer = await Member(coordinator, "a").join(topics=None, pattern="(")
    assert answer.error_code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message


async def test_consumer_groups_can_be_switched_off() -> None:
    config = CoordinatorConfig(shards=4, rebalance_protocols=("classic",))
    coordinator = GroupCoordinator(MemoryOffsetStorage(), config)
    await coordinator.start()
    answer = await Member(coordinator, "a").join()
    assert answer.error_code is ErrorCode.UNSUPPORTED_VERSION
    await coordinator.stop()


async def test_another_request_is_a_type_error(coordinator: GroupCoordinator) -> None:
    with pytest.raises(TypeError, match="ConsumerGroupHeartbeatRequest"):
        await coordinator.consumer_group_heartbeat("g")  # type: ignore[arg-type]
