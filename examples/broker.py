"""A message broker of a hundred lines that embeds the coordinator: one JSON object a line over TCP.

The broker keeps messages; who reads which partition, who died, and how far each group has come is
the coordinator's. The broker assigns for the members, so its clients need to know nothing of it:
broker_clients.py has two of them at work.
"""

import asyncio
import json
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from groupkeeper import (
    GroupCoordinator,
    GroupError,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MemberAssignmentData,
    OffsetCommitData,
    OffsetCommitRequest,
    ProtocolMetadata,
    SqliteOffsetStorage,
    SyncGroupRequest,
    TopicPartition,
    decode_assignment,
)

PARTITIONS = 4
Answer = dict[str, Any]


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

    async def do_produce(self, topic: str, key: str, value: str) -> Answer:
        partition = zlib.crc32(key.encode()) % PARTITIONS
        log = self.logs[TopicPartition(topic, partition)]
        log.append(value)
        return {"partition": partition, "offset": len(log) - 1}

    async def do_join(self, group: str, topic: str, member: str = "") -> Answer:
        protocols = [ProtocolMetadata.subscribing("sticky", [topic])]
        request = JoinGroupRequest(group_id=group, member_id=member, protocols=protocols)
        joined = (await self.groups.join_group(request)).raise_for_error()
        parts: list[MemberAssignmentData] = []
        if joined.is_leader:
            partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            dealt = await self.groups.perform_assignment(group, partitions)
            parts = [MemberAssignmentData.of(*each) for each in dealt.items()]
        who: Answer = {"group_id": group, "member_id": joined.member_id}
        who["generation_id"] = joined.generation_id
        synced = await self.groups.sync_group(SyncGroupRequest(**who, assignments=parts))
        assigned = decode_assignment(synced.raise_for_error().assignment).partitions
        return {**who, "topic": topic, "partitions": assigned.get(topic, [])}

    async def do_poll(self, topic: str, partitions: list[int], **who: Any) -> Answer:
        (await self.groups.heartbeat(HeartbeatRequest(**who))).raise_for_error()
        messages = []
        for number in partitions:
            begin = await self.groups.get_committed_offset(who["group_id"], topic, number) or 0
            log = self.logs[TopicPartition(topic, number)]
            messages += [[number, at, log[at]] for at in range(begin, len(log))]
        return {"messages": messages}

    async def do_commit(self, topic: str, partition: int, offset: int, **who: Any) -> Answer:
        offsets = {topic: {partition: OffsetCommitData(offset)}}
        request = OffsetCommitRequest(**who, offsets=offsets)
        (await self.groups.commit_offsets(request)).raise_for_error()
        return {}

    async def do_leave(self, **who: str) -> Answer:
        (await self.groups.leave_group(LeaveGroupRequest(**who))).raise_for_error()
        return {}


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[int]:
    coordinator = GroupCoordinator(SqliteOffsetStorage(folder / "groups.db"))
    await coordinator.start()
    server = await asyncio.start_server(Broker(coordinator).serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await coordinator.stop()
