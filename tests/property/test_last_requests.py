"""A connection that remembers its last requests answers and stores as if it remembered nothing.

The same frames go to two coordinators: to one over connections that stay, to the other over a new
connection for each frame.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.handlers.services import Services
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.coordinator.server.watch import CallbackWatch
from groupkeeper.protocol.packing import printed_topic_id
from tests.helpers.core.examples import examples
from tests.helpers.runtime.coordinator import TOPICS, World, a_coordinator
from tests.helpers.runtime.virtual_loop import run_virtual
from tests.helpers.wire.connections import Peer
from tests.helpers.wire.raw_client import encode_request

CONNECTIONS = [0, 0, 0, 1]
"""Mostly the same one, because each remembers only its own requests."""
LONG = "g" * 505
"""A group id so long that bodies differ only behind what a connection compares."""
GROUPS = ["g", "h", LONG]
MEMBERS = ["member-1", "member-2", "member-3"]
"""The member of each group."""
VERSION_AT = 7
BODY_OR_CLIENT_ID_AT = 12
ROWS = st.tuples(
    st.sampled_from([0, 1, 2, 11, 12]),
    st.integers(0, 5),
    st.sampled_from(["", "", "", None, "note"]),
)

PARTS: dict[str, st.SearchStrategy[Any]] = {
    "version": st.sampled_from([2, 3, 4, 6, 7, 8, 8, 9, 9, 10]),
    "client_id": st.sampled_from(["app", "app", "", "ä", "x" * 300]),
    "group_id": st.sampled_from(["g", "g", "h", "", LONG]),
    "member_id": st.sampled_from([*MEMBERS, *MEMBERS, "", "nobody"]),
    "instance_id": st.sampled_from([None, None, None, "i"]),
    "generation_id": st.sampled_from([1, 1, 1, 2, -1]),
    "topics": st.lists(
        st.tuples(
            st.sampled_from(["orders", "orders", "ordera"]),
            st.lists(ROWS, min_size=1, max_size=2),
        ),
        min_size=1,
        max_size=2,
    ),
}


@st.composite
def requests(draw: st.DrawFn) -> list[bytes]:
    """A heartbeat, a commit or a fetch, and others that differ from it in one part."""
    api = draw(st.sampled_from(["heartbeat", "offset_commit", "offset_commit", "offset_fetch"]))
    parts = {name: draw(values) for name, values in PARTS.items()}
    pool = [encoded(api, **parts)]
    others = draw(st.lists(st.sampled_from([*PARTS, "topics"]), max_size=3))
    return pool + [encoded(api, **{**parts, name: draw(PARTS[name])}) for name in others]


def encoded(
    api: str,
    version: int,
    client_id: str,
    group_id: str,
    member_id: str,
    instance_id: str | None,
    generation_id: int,
    topics: list[tuple[str, list[tuple[int, int, str | None]]]],
) -> bytes:
    values: dict[str, Any] = {"group_id": group_id, "member_id": member_id}
    if api == "heartbeat":
        version = min(version, 4)
        values["generation_id"] = generation_id
        if version >= 3:
            values["group_instance_id"] = instance_id
    elif api == "offset_commit":
        version = max(version, 2)
        values["generation_id_or_member_epoch"] = generation_id
        if version >= 7:
            values["group_instance_id"] = instance_id
        values["topics"] = [
            {**named(name, by_id=version == 10), "partitions": [row_of(*row) for row in rows]}
            for name, rows in topics
        ]
    else:
        version = min(max(version, 1), 9)
        fetched = [
            {"name": name, "partition_indexes": [r[0] for r in rows]} for name, rows in topics
        ]
        values = {"group_id": group_id, "topics": fetched}
        if version >= 8:
            values = {"groups": [values]}
    return encode_request(api, version, values, 0, client_id)


def named(name: str, *, by_id: bool) -> dict[str, Any]:
    """A topic of a request. Its id is the one that ``life`` gives to it."""
    if not by_id:
        return {"name": name}
    number = {"orders": 1, "payments": 2}.get(name, 77)
    return {"topic_id": uuid.UUID(bytes=bytes([number] * 16))}


def row_of(partition: int, offset: int, metadata: str | None) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_metadata": metadata,
    }


@st.composite
def changed(draw: st.DrawFn, frame: bytes) -> bytes:
    """The frame with another version, or a few bytes changed, missing or added."""
    data = bytearray(frame)
    data[VERSION_AT] = max(0, data[VERSION_AT] + draw(st.sampled_from([0, 0, 1, -1])))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(BODY_OR_CLIENT_ID_AT, len(data) - 1))
        data[at] = draw(st.sampled_from([0, 1, 2, 5, data[at] ^ 1]))
    end = draw(st.sampled_from([None] * 6 + [-1, -2, BODY_OR_CLIENT_ID_AT]))
    return bytes(data[:end] + draw(st.sampled_from([b"", b"", b"\0", b"\1"])))


Turn = tuple[int, list[bytes]]
"""A connection, and the frames that come in one read."""


@st.composite
def turns_of(draw: st.DrawFn) -> list[Turn]:
    """Few requests, each often: as they are, several in one read, or changed."""
    pools = draw(st.lists(requests(), min_size=1, max_size=2))
    one = st.sampled_from([frame for pool in pools for frame in pool])
    read = st.one_of(
        st.lists(one, min_size=1, max_size=3),
        one.flatmap(lambda frame: st.tuples(changed(frame)).map(list)),
    )
    return draw(st.lists(st.tuples(st.sampled_from(CONNECTIONS), read), min_size=3, max_size=12))


def numbered(frame: bytes, number: int) -> bytes:
    """The frame with its size, and a correlation id."""
    return struct.pack(">i", len(frame) - 4) + frame[4:8] + struct.pack(">i", number) + frame[12:]


async def answers(world: World, turns: list[Turn], *, is_new_each_time: bool) -> list[bytes]:
    """Send the frames, and return everything that each one made the connection write."""
    services = Services(coordinator=world.coordinator, topics=world.coordinator.topics)
    watch = CallbackWatch(read_s=lambda: 0.0)
    server = KafkaServer(services, ServerLimits(), watch=watch)
    peers = [Peer(server) for _ in set(CONNECTIONS)]
    written: list[bytes] = []
    number = 0
    for connection, read in turns:
        if peers[connection].transport.is_closed:
            peers[connection] = Peer(server)
        used = [Peer(server) for _ in read] if is_new_each_time else [peers[connection]]
        sent = [numbered(frame, number + at) for at, frame in enumerate(read)]
        number += len(read)
        if is_new_each_time:
            for peer, frame in zip(used, sent, strict=True):
                peer.send(frame)
        else:
            used[0].send(*sent)
        await asyncio.sleep(1)  # what they write is durable
        written += [b"".join(b"".join(peer.transport.writes) for peer in used)]
        for peer in used:
            peer.transport.writes.clear()
    return written


async def life(turns: list[Turn], *, is_new_each_time: bool) -> tuple[list[bytes], Any]:
    """Run the frames against two stable groups until their sessions have expired."""
    ids = (printed_topic_id(bytes([number] * 16)) for number in range(1, 100))
    async with a_coordinator(topics=Topics(TOPICS, lambda: next(ids))) as world:
        for group_id in GROUPS:
            await world.a_stable_group(group_id, 1)
        written = await answers(world, turns, is_new_each_time=is_new_each_time)
        await asyncio.sleep(30)  # the sessions expire
    return written, [(a.shard, a.batches) for items in world.storage.appends for a in items]


@settings(max_examples=examples(300), derandomize=True, deadline=None, database=None)
@given(turns_of())
def test_answers_and_records_are_those_of_connections_that_remember_nothing(
    turns: list[Turn],
) -> None:
    written, stored = run_virtual(life(turns, is_new_each_time=False))
    fresh, stored_fresh = run_virtual(life(turns, is_new_each_time=True))
    assert written == fresh
    assert stored == stored_fresh
