"""A member of a consumer group (KIP-848) inside a program: the coordinator assigns, it follows."""

import asyncio
from uuid import uuid4

from groupkeeper import (
    ConsumerGroupHeartbeatRequest,
    GroupCoordinator,
    MemoryOffsetStorage,
    OffsetCommitData,
    OffsetCommitRequest,
)


async def main() -> None:
    coordinator = GroupCoordinator(MemoryOffsetStorage(), topics={"orders": 3})
    await coordinator.start()
    member = {"group_id": "billing", "member_id": str(uuid4())}  # the client makes its id
    subscription = {"topics": ["orders"], "rebalance_timeout_ms": 60_000, "owned_partitions": {}}
    joining = ConsumerGroupHeartbeatRequest(**member, member_epoch=0, **subscription)
    joined = (await coordinator.consumer_group_heartbeat(joining)).raise_for_error()
    print("assigned:", joined.assignment)
    # Again every heartbeat_interval_ms: None in the answer means that the partitions stay.
    beat = ConsumerGroupHeartbeatRequest(
        **member, member_epoch=joined.member_epoch, owned_partitions=joined.assignment
    )
    told = (await coordinator.consumer_group_heartbeat(beat)).raise_for_error()
    print("later:", told.assignment)
    offsets = {"orders": {0: OffsetCommitData(42)}}
    commit = OffsetCommitRequest(**member, generation_id=told.member_epoch, offsets=offsets)
    (await coordinator.commit_offsets(commit)).raise_for_error()
    leaving = ConsumerGroupHeartbeatRequest(**member, member_epoch=-1)
    (await coordinator.consumer_group_heartbeat(leaving)).raise_for_error()
    print("committed:", await coordinator.get_committed_offset("billing", "orders", 0))
    await coordinator.stop()


if __name__ == "__main__":
    asyncio.run(main())
