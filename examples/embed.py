"""A coordinator inside a program: a member joins, is assigned partitions, commits, leaves."""

import asyncio

from groupkeeper import (
    GroupCoordinator,
    JoinGroupRequest,
    LeaveGroupRequest,
    MemberAssignmentData,
    MemoryOffsetStorage,
    OffsetCommitData,
    OffsetCommitRequest,
    ProtocolMetadata,
    SyncGroupRequest,
    TopicPartition,
    decode_assignment,
)


async def main() -> None:
    coordinator = GroupCoordinator(MemoryOffsetStorage())
    await coordinator.start()
    protocols = [ProtocolMetadata.subscribing("range", ["orders"])]
    me = await coordinator.join_group(JoinGroupRequest(group_id="billing", protocols=protocols))
    partitions = [TopicPartition("orders", number) for number in range(3)]
    dealt = await coordinator.perform_assignment("billing", partitions)
    member = {"group_id": "billing", "member_id": me.member_id}
    assignments = [MemberAssignmentData.of(*each) for each in dealt.items()]
    synced = await coordinator.sync_group(
        SyncGroupRequest(**member, generation_id=me.generation_id, assignments=assignments)
    )
    print("assigned:", decode_assignment(synced.assignment).partitions)
    offsets = {"orders": {0: OffsetCommitData(42)}}
    commit = OffsetCommitRequest(**member, generation_id=me.generation_id, offsets=offsets)
    (await coordinator.commit_offsets(commit)).raise_for_error()
    await coordinator.leave_group(LeaveGroupRequest(**member))
    print("committed:", await coordinator.get_committed_offset("billing", "orders", 0))
    await coordinator.stop()


if __name__ == "__main__":
    asyncio.run(main())
