"""A message broker that embeds the coordinator: one JSON object a line over TCP.

The broker keeps messages; who reads which partition, who died, and how far each group has come is
the coordinator's. The broker assigns for the members, so its clients need to know nothing of it.
"""

import asyncio
import json
import tempfile
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

from coordinator.core.assignors.types import TopicPartition
from coordinator.core.errors import ErrorCode, GroupError
from coordinator.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MemberAssignmentData,
    OffsetCommitData,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProtocolMetadata,
    SyncGroupRequest,
)
from coordinator.service import GroupCoordinator
from protocol.consumer_protocol import decode_assignment
from storage.sqlite import SqliteOffsetStorage

PARTITIONS = 4


class Broker:
    def __init__(self, coordinator: GroupCoordinator) -> None:
        self.groups = coordinator
        self.logs: dict[TopicPartition, list[str]] = defaultdict(list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for line in reader:
            call = json.loads(line)
            try:
                answer = await getattr(self, "do_" + call.pop("do"))(**call)
            except GroupError as error:
                answer = {"error": error.code.name}
            writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    async def do_produce(self, topic: str, key: str, value: str) -> dict[str, Any]:
        partition = zlib.crc32(key.encode()) % PARTITIONS
        log = self.logs[TopicPartition(topic, partition)]
        log.append(value)
        return {"partition": partition, "offset": len(log) - 1}

    async def do_join(self, group: str, topic: str, member: str = "") -> dict[str, Any]:
        protocols = [ProtocolMetadata.subscribing("sticky", [topic])]
        request = JoinGroupRequest(group_id=group, member_id=member, protocols=protocols)
        joined = (await self.groups.join_group(request)).raise_for_error()
        parts: list[MemberAssignmentData] = []
        if joined.is_leader:
            partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            dealt = await self.groups.perform_assignment(group, partitions)
            parts = [MemberAssignmentData.of(*each) for each in dealt.items()]
        who: dict[str, Any] = {"group": group, "member": joined.member_id}
        who["generation"] = joined.generation_id
        synced = await self.groups.sync_group(SyncGroupRequest(**_named(**who), assignments=parts))
        assigned = decode_assignment(synced.raise_for_error().assignment).partitions
        return {**who, "topic": topic, "partitions": assigned.get(topic, [])}

    async def do_poll(self, topic: str, partitions: list[int], **who: Any) -> dict[str, Any]:
        (await self.groups.heartbeat(HeartbeatRequest(**_named(**who)))).raise_for_error()
        request = OffsetFetchRequest(group_id=who["group"], topics={topic: partitions})
        committed = (await self.groups.fetch_offsets(request)).offsets.get(topic, {})
        messages = []
        for number in partitions:
            begin = max(committed[number].offset, 0)
            log = self.logs[TopicPartition(topic, number)]
            messages += [[number, at, log[at]] for at in range(begin, len(log))]
        return {"messages": messages}

    async def do_commit(
        self, topic: str, partition: int, offset: int, **who: Any
    ) -> dict[str, Any]:
        offsets = {topic: {partition: OffsetCommitData(offset)}}
        request = OffsetCommitRequest(**_named(**who), offsets=offsets)
        (await self.groups.commit_offsets(request)).raise_for_error()
        return {}

    async def do_leave(self, group: str, member: str) -> dict[str, Any]:
        request = LeaveGroupRequest(group_id=group, member_id=member)
        (await self.groups.leave_group(request)).raise_for_error()
        return {}


def _named(group: str, member: str, generation: int) -> dict[str, Any]:
    return {"group_id": group, "member_id": member, "generation_id": generation}


# --- What a client does -------------------------------------------------------------------------


async def call(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], **what: Any) -> Any:
    reader, writer = streams
    writer.write(json.dumps(what).encode() + b"\n")
    answer = json.loads(await reader.readline())
    if "error" in answer:
        raise GroupError(ErrorCode[answer["error"]])
    return answer


async def consume(port: int, name: str, wanted: int, seen: dict[str, list[str]]) -> None:
    """Read until ``wanted`` messages were seen by all together; join again when told to."""
    streams = await asyncio.open_connection("127.0.0.1", port)
    me = await call(streams, do="join", group="billing", topic="orders")
    while sum(map(len, seen.values())) < wanted:
        try:
            for partition, offset, value in (await call(streams, do="poll", **me))["messages"]:
                here = {"partition": partition, "offset": offset + 1}
                who = {key: me[key] for key in ("group", "member", "generation", "topic")}
                await call(streams, do="commit", **who, **here)
                seen[name].append(value)
        except GroupError as error:
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                raise
            again = {"group": "billing", "topic": "orders", "member": me["member"]}
            me = await call(streams, do="join", **again)
        await asyncio.sleep(0.01)
    print(f"{name} has partitions {me['partitions']} and read {len(seen[name])} messages")
    await call(streams, do="leave", group="billing", member=me["member"])
    streams[1].close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        coordinator = GroupCoordinator(SqliteOffsetStorage(Path(folder, "groups.db")))
        await coordinator.start()
        broker = Broker(coordinator)
        server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        seen: dict[str, list[str]] = {"ann": [], "bob": []}
        readers = [asyncio.create_task(consume(port, name, 40, seen)) for name in seen]
        streams = await asyncio.open_connection("127.0.0.1", port)
        for number in range(40):
            await call(streams, do="produce", topic="orders", key=str(number), value=f"#{number}")
            await asyncio.sleep(0.01)
        await asyncio.gather(*readers)
        streams[1].close()
        everything = sorted(seen["ann"] + seen["bob"], key=lambda value: int(value[1:]))
        print(f"{len(everything)} messages, each read once:", len(set(everything)) == 40)
        server.close()
        await coordinator.stop()


if __name__ == "__main__":
    asyncio.run(main())
