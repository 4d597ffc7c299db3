"""Connections that send random requests, a third of them mutated, and count the answers."""

from __future__ import annotations

import asyncio
import random
import struct
import time
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from groupkeeper.protocol.codec import request_class
from groupkeeper.protocol.versions import API_BY_KEY, ApiKey
from tests.fuzz.judge import Figures
from tests.fuzz.mutations import changed
from tests.fuzz.target import PARKING, split
from tests.helpers.wire.raw_client import API_KEYS, encode_request
from tests.helpers.wire.wire_entities import INTEGERS, encode, served, shapes

PATIENCE_S = 60.0
"""For each answer, since the one before: a connection answers one request after the other. A Fetch
may wait 30 s, an idle connection is closed after 10: who then knows nothing is stuck."""

MOST_FRAMES = 8
MOST_PARKED = 20
MOST_MEMBER_IDS = 100
MEMBER_ID_BYTES = len("fz-") + 36
NAMES = tuple(f"fz-{number}" for number in range(12))
"""Of groups, topics, members, instances... nothing of the members beside is called so."""

_SERVED = served()
_API_NAMES = {key: name for name, key in API_KEYS.items()}


# --- what is sent ---------------------------------------------------------------------------------


def random_frame(rng: random.Random) -> bytes:
    """A valid request of a random API and version."""
    key, version = rng.choice(_SERVED)
    body, _ = encode(random_entity(rng, request_class(key, version)))
    head = struct.pack(">hhih", key, version, rng.getrandbits(31), 2) + b"fz"
    if API_BY_KEY[ApiKey(key)].is_flexible(version):
        head += b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def random_entity(rng: random.Random, entity_type: Any) -> Any:
    """An entity with valid fields; names come from a few, so that requests meet."""
    values: dict[str, Any] = {}
    for shape in shapes(entity_type):
        if shape.nullable and rng.random() < 0.2:
            values[shape.name] = None
        elif shape.is_array:
            count = rng.choice((0, 1, 1, 2, 3))
            values[shape.name] = tuple(_value(rng, shape) for _ in range(count))
        else:
            values[shape.name] = _value(rng, shape)
    return entity_type(**values)


def _value(rng: random.Random, shape: Any) -> Any:
    kafka_type = shape.kafka_type
    if shape.entity is not None:
        return random_entity(rng, shape.entity)
    if kafka_type == "error_code":
        return ErrorCode(0)
    if kafka_type in INTEGERS:
        bits = struct.calcsize(INTEGERS[kafka_type]) * 8 - 1
        return rng.choice((-1, 0, 1, 1, 2, 3, 5, rng.randrange(-(2**bits), 2**bits)))
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return timedelta(milliseconds=rng.choice((-1, 0, 100, 6_000, 7_000, 10_000)))
    if kafka_type == "bool":
        return rng.random() < 0.5
    if kafka_type == "uuid":
        return rng.choice((None, uuid.UUID(int=rng.randrange(1, 5))))
    if kafka_type == "string":
        return rng.choice((*NAMES, "", "range", "consumer", "é"))
    return rng.randbytes(rng.choice((0, 1, 8, 40)))


def member_frames(rng: random.Random, group_id: str, member_id: str, step: int) -> bytes:
    """The next request of a member that means well."""
    common = {"group_id": group_id, "member_id": member_id, "generation_id": 1}
    partitions = [{"partition_index": rng.randrange(4), "committed_offset": rng.randrange(1000)}]
    api, version, values = (
        (
            "join_group",
            rng.randint(0, 9),
            {
                **common,
                "session_timeout": 6_000,
                "rebalance_timeout": 8_000,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": rng.randbytes(8)}],
            },
        ),
        (
            "sync_group",
            rng.randint(0, 3),
            {**common, "assignments": [{"member_id": member_id, "assignment": b"x"}]},
        ),
        ("heartbeat", rng.randint(0, 4), common),
        (
            "offset_commit",
            rng.randint(2, 9),
            {
                **common,
                "generation_id_or_member_epoch": -1,
                "topics": [{"name": rng.choice(NAMES), "partitions": partitions}],
            },
        ),
        ("offset_fetch", rng.randint(1, 7), {**common, "topics": None}),
        ("leave_group", rng.randint(0, 2), common),
        ("consumer_group_heartbeat", rng.randint(0, 1), _consumer_values(rng, common)),
    )[step % 7]
    return encode_request(api, version, values, rng.getrandbits(31), "fz")


def _consumer_values(rng: random.Random, common: dict[str, Any]) -> dict[str, Any]:
    """A member of the consumer protocol: it joins, follows, or leaves."""
    return {
        "group_id": common["group_id"],
        "member_id": common["member_id"] or f"fz-modern-{rng.randrange(20)}",
        "member_epoch": rng.choice((0, 0, 1, 2, 3, -1, -2)),
        "instance_id": rng.choice((None, None, rng.choice(NAMES))),
        "rebalance_timeout": rng.choice((-1, 8_000)),
        "subscribed_topic_names": rng.choice((None, [rng.choice(NAMES)], [*NAMES])),
        "subscribed_topic_regex": rng.choice((None, None, "fz-.*", "(", "")),
        "topic_partitions": rng.choice((None, [])),
    }


# --- who sends it ---------------------------------------------------------------------------------


class Attack:
    """All attacking connections of a run."""

    def __init__(self, port: int, seeds: Sequence[bytes], figures: Figures, rng_seed: int) -> None:
        """Connect to nobody yet."""
        self.figures = figures
        self.patience_s = PATIENCE_S
        self.parked: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._port = port
        self._seeds = [frame for seed in seeds for frame in split(seed)]
        self._rng = random.Random(rng_seed)
        self._member_ids: list[str] = [""]

    async def run(self, connections: int, until_s: float) -> None:
        """Keep so many connections busy until the time (``time.monotonic``)."""
        async with asyncio.TaskGroup() as group:
            for _ in range(connections):
                group.create_task(self._keep_attacking(until_s))

    async def _keep_attacking(self, until_s: float) -> None:
        while time.monotonic() < until_s:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                await asyncio.sleep(0.5)  # if the daemon has ended, the judge reports it
                continue
            self.figures.connections += 1
            await self._converse(reader, writer, until_s)

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, until_s: float
    ) -> None:
        rng = self._rng
        for _ in range(rng.randint(1, 10)):
            data = b"".join(self._next_frames())
            try:
                await self._send(writer, data)
            except OSError:
                self.figures.closed += 1
                break
            outcome = await self._outcome(reader, split(data))
            if outcome == "parked" and len(self.parked) < MOST_PARKED:
                self.parked.append((reader, writer))
                return
            if outcome != "answered" or time.monotonic() >= until_s:
                break
            if len(b"".join(split(data))) != len(data):
                break  # the frame stays incomplete, so nothing can follow it
        writer.close()

    def _next_frames(self) -> list[bytes]:
        rng, figures = self._rng, self.figures
        group_id, step = rng.choice(NAMES), rng.randrange(7)
        frames = []
        for number in range(rng.randint(1, MOST_FRAMES)):
            kind = rng.random()
            if kind < 0.3:
                frame = rng.choice(self._seeds)
            elif kind < 0.6:
                frame = member_frames(rng, group_id, rng.choice(self._member_ids), step + number)
            else:
                frame = random_frame(rng)
            if rng.random() < 0.3:
                figures.mutated += 1
                frame = changed(rng, frame)
                if rng.random() < 0.02:  # change the length as well
                    frame = rng.randbytes(rng.randint(1, 4)) + frame[4:]
            frames.append(frame)
        figures.requests += len(frames)
        return frames

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """In one piece or in several, as networks do."""
        while data:
            size = len(data) if self._rng.random() < 0.8 else self._rng.randint(1, len(data))
            writer.write(data[:size])
            await writer.drain()
            data = data[size:]
            if data:
                await asyncio.sleep(0)

    async def _outcome(self, reader: asyncio.StreamReader, frames: list[bytes]) -> str:
        """Read until each whole frame has its answer, the daemon closes, or patience for one answer
        is over.
        """
        position = 0
        try:
            while position < len(frames):
                async with asyncio.timeout(self.patience_s):
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    answer = await reader.readexactly(size)
                self._learn(frames[position], answer)
                self.figures.answered += 1
                position += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            self.figures.closed += 1
            return "closed"
        except TimeoutError:
            kinds = [(frame[4:6].hex(), frame[6:8].hex()) for frame in frames[position:]]
            if int.from_bytes(frames[position][4:6]) in PARKING:
                self.figures.parked += 1
                return "parked"
            self.figures.stuck.append(f"after {position} answers, (API, version): {kinds}")
            return "stuck"
        return "answered"

    def _learn(self, frame: bytes, reply: bytes) -> None:
        """Remember ids of members that a join handed out, to speak for them."""
        if frame[4:6] != b"\0\x0b":
            return
        at = reply.find(b"fz-", 4)
        if at < 0:
            return
        member_id = reply[at : at + MEMBER_ID_BYTES].decode(errors="replace")
        if len(self._member_ids) < MOST_MEMBER_IDS:
            self._member_ids.append(member_id)
        else:
            self._member_ids[self._rng.randrange(1, MOST_MEMBER_IDS)] = member_id

    async def end_parked(self) -> None:
        """The daemon has stopped: whatever was parked has its answer or its end."""
        for reader, writer in self.parked:
            try:
                async with asyncio.timeout(min(5.0, self.patience_s)):
                    await reader.read()  # to the end of the stream
            except TimeoutError:
                self.figures.stuck.append("parked, and not even ended by the stop")
            except ConnectionError:
                pass
            writer.close()
