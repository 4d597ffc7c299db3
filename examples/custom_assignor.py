"""A group whose members chose an assignor of another distribution: `pip install examples/assignor`
first.
"""

import asyncio

from groupkeeper import (
    GroupCoordinator,
    JoinGroupRequest,
    MemoryOffsetStorage,
    ProtocolMetadata,
    TopicPartition,
    installed_assignors,
)


async def main() -> None:
    print("installed:", ", ".join(installed_assignors()))
    coordinator = GroupCoordinator(MemoryOffsetStorage())
    await coordinator.start()
    protocols = [ProtocolMetadata.subscribing("one-takes-all", ["orders"])]
    request = JoinGroupRequest(group_id="billing", client_id="ann", protocols=protocols)
    (await coordinator.join_group(request)).raise_for_error()
    partitions = [TopicPartition("orders", number) for number in range(3)]
    dealt = await coordinator.perform_assignment("billing", partitions)
    print("assigned:", [[partition for _, partition in parts] for parts in dealt.values()])
    await coordinator.stop()


if __name__ == "__main__":
    asyncio.run(main())
