"""Members that speak the protocol themselves: hundreds in one process, each with a connection.

They follow the rules of the real clients: rejoin when told to, go on with the same member id and
generation after an outage, ask again where the coordinator is loading. None repeats a commit.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from typing import TYPE_CHECKING, Any

from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tests.helpers.wire.raw_client import decode_response, encode_request

if TYPE_CHECKING:
    from tests.soak.client_host import Part

NONE, NOT_READY = 0, (14, 15, 16)
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 22, 25, 27
MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID = 79, 82
REPLY_LIMIT_S = 120
"""Longer than a rebalance may take: a parked join is no outage."""

LARGE_NOTE_EVERY = 10
"""One member in so many commits the largest metadata that there may be."""
LARGE_NOTE = "\x01" * 4_096


class Rejoin(Exception):
    """The member has to go through a rebalance again."""


async def live(parts: list[Part]) -> None:
    """Be all these members, until the process ends."""
    await asyncio.gather(*(RawMember(part).live() for part in parts))


class RawMember:
    """One member, one connection, one request at a time."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._member_id = ""
        self._generation = -1
        self._held: list[int] = []
        self._correlation_id = 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._draw = random.Random(part.number)

    async def live(self) -> None:
        await asyncio.sleep(self._draw.random() * 2)
        while not self._part.closing():
            try:
                if self._generation < 0:
                    await self._join()
                await self._work()
            except Rejoin:
                self._generation = -1
            except (OSError, EOFError, TimeoutError):
                self._disconnect()
                await asyncio.sleep(self._draw.uniform(0.5, 2))

    async def _work(self) -> None:
        part = self._part
        heartbeat_s = commit_s = time.monotonic()
        while not part.closing():
            now_s = time.monotonic()
            if now_s >= heartbeat_s:
                heartbeat_s = now_s + part.heartbeat_ms / 1000
                self._check(await self._ask("heartbeat", 3))
            if now_s >= commit_s and self._held:
                commit_s = now_s + part.commit_every_s * self._draw.uniform(0.5, 1.5)
                await self._commit()
            await asyncio.sleep(0.25)
        self._disconnect()

    async def _commit(self) -> None:
        part = self._part
        offset = part.sends(self._held)
        note = LARGE_NOTE if part.number % LARGE_NOTE_EVERY == 0 else ""
        partitions = [
            {"partition_index": p, "committed_offset": offset, "committed_metadata": note}
            for p in self._held
        ]
        reply = await self._ask(
            "offset_commit",
            7,
            generation_id_or_member_epoch=self._generation,
            topics=[{"name": part.topic, "partitions": partitions}],
        )
        codes = {p["partition_index"]: p["error_code"] for p in reply["topics"][0]["partitions"]}
        part.has(offset, [p for p, code in codes.items() if code == NONE])
        for code in codes.values():
            self._check({"error_code": code})

    async def _join(self) -> None:
        part = self._part
        subscription = encode_subscription(Subscription(1, [part.topic]))
        reply: dict[str, Any] = {"error_code": MEMBER_ID_REQUIRED, "member_id": self._member_id}
        while reply["error_code"] == MEMBER_ID_REQUIRED:
            self._identity(reply["member_id"])
            reply = await self._ask(
                "join_group",
                5,
                session_timeout=part.session_ms,
                rebalance_timeout=part.rebalance_ms,
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": subscription}],
            )
        self._check(reply)
        self._identity(reply["member_id"])
        self._generation = reply["generation_id"]
        assignments = []
        if reply["leader"] == self._member_id:
            assignments = self._assign([member["member_id"] for member in reply["members"]])
        reply = await self._ask("sync_group", 3, assignments=assignments)
        self._check(reply)
        self._held = decode_assignment(reply["assignment"]).partitions.get(part.topic, [])

    def _assign(self, members: list[str]) -> list[dict[str, Any]]:
        topic, partitions = self._part.topic, range(self._part.partitions)
        return [
            {
                "member_id": member,
                "assignment": encode_assignment(
                    ConsumerAssignment(1, {topic: list(partitions[n :: len(members)])})
                ),
            }
            for n, member in enumerate(sorted(members))
        ]

    def _check(self, reply: dict[str, Any]) -> None:
        """Do what a code asks for."""
        match reply["error_code"]:
            case 0:
                return
            case code if code in NOT_READY:
                raise TimeoutError  # a real client finds its coordinator again
            case code if code in (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION):
                raise Rejoin
            case code if code in (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID):
                self._identity("")
                raise Rejoin
            case code:
                raise AssertionError(f"{self._part.name}: error {code}")

    def _identity(self, member_id: str) -> None:
        if member_id != self._member_id:
            self._member_id = member_id
            self._part.identity(member_id)

    async def _ask(self, api: str, version: int, **values: Any) -> dict[str, Any]:
        part = self._part
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", part.port)
        self._correlation_id += 1
        named = {
            "group_id": part.group,
            "member_id": self._member_id,
            "group_instance_id": part.instance,
            "generation_id": self._generation,
            **values,
        }
        self._writer.write(encode_request(api, version, named, self._correlation_id, part.name))
        async with asyncio.timeout(REPLY_LIMIT_S):
            (length,) = struct.unpack(">i", await self._reader.readexactly(4))
            frame = await self._reader.readexactly(length)
        correlation_id, reply = decode_response(api, version, frame)
        assert correlation_id == self._correlation_id, "replies out of order"
        return reply

    def _disconnect(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None
