"""Measure hot messages: our struct code and our general reader, beside kio.

    python -m bench.protocol_bench

It measures CPU time in microseconds. kio's native reader is faster than Python code can be, but it
must not read bytes from a socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

from kio.serial import entity_reader, entity_writer

from bench.figures import Figure, cpu_us, show
from groupkeeper.protocol.codec import read_request, request_class, response_class, write_response
from groupkeeper.protocol.frames import FrameSplitter, read_request_header
from groupkeeper.protocol.packed.heartbeat import pack_heartbeat, read_heartbeat
from groupkeeper.protocol.packed.offset_commit import pack_offset_commit, read_offset_commit
from groupkeeper.protocol.packed.offset_fetch import pack_offset_fetch, read_offset_fetch
from groupkeeper.protocol.versions import ApiKey
from groupkeeper.protocol.writer import Row
from tests.helpers.wire.kio_replies import build

PARTITIONS = 10
LIMIT = 20_000
MEMBER = "consumer-orders-1-01234567-89ab-cdef-0123-456789abcdef"


def written(entity: Any) -> bytes:
    """Return the bytes of an entity as kio writes them."""
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def heartbeat() -> bytes:
    """Return a Heartbeat v4."""
    return written(
        build(
            request_class(ApiKey.HEARTBEAT, 4),
            group_id="orders",
            generation_id=5,
            member_id=MEMBER,
            group_instance_id=None,
        )
    )


def commit() -> bytes:
    """Return an OffsetCommit v8 of ten partitions without metadata."""
    partitions = [
        {
            "partition_index": number,
            "committed_offset": 1_000_000 + number,
            "committed_leader_epoch": 3,
            "committed_metadata": "",
        }
        for number in range(PARTITIONS)
    ]
    return written(
        build(
            request_class(ApiKey.OFFSET_COMMIT, 8),
            group_id="orders",
            generation_id_or_member_epoch=5,
            member_id=MEMBER,
            group_instance_id=None,
            topics=[{"name": "orders", "partitions": partitions}],
        )
    )


def fetch() -> bytes:
    """Return an OffsetFetch v7 of ten partitions."""
    topics = [{"name": "orders", "partition_indexes": range(PARTITIONS)}]
    return written(
        build(
            request_class(ApiKey.OFFSET_FETCH, 7),
            group_id="orders",
            topics=topics,
            require_stable=True,
        )
    )


def reading() -> Iterator[Figure]:
    """Measure the reading of requests in three ways."""
    rows: list[tuple[str, ApiKey, int, Any, bytes]] = [
        ("Heartbeat v4", ApiKey.HEARTBEAT, 4, read_heartbeat, heartbeat()),
        ("OffsetCommit v8 x10", ApiKey.OFFSET_COMMIT, 8, read_offset_commit, commit()),
        ("OffsetFetch v7 x10", ApiKey.OFFSET_FETCH, 7, read_offset_fetch, fetch()),
    ]
    for name, key, version, read, body in rows:
        kio = entity_reader(request_class(key, version))
        hot = cpu_us(lambda read=read, v=version, b=body: read(v, b, 0, LIMIT))
        careful = cpu_us(lambda k=key, v=version, b=body: read_request(k, v, b, 0, LIMIT))
        theirs = cpu_us(lambda kio=kio, b=body: kio(b, 0))
        beside = f"careful reader {careful:.2f}, kio {theirs:.2f}"
        yield Figure("protocol", f"read {name}", hot, beside)


def packing() -> Iterator[Figure]:
    """Measure the writing of replies in two ways."""
    commits = read_offset_commit(8, commit(), 0, LIMIT)[5]
    fetched = [("orders", "", [(n, 1_000_000 + n, 3, "", 0) for n in range(PARTITIONS)])]
    fetch_rows = [
        {
            "partition_index": p,
            "committed_offset": offset,
            "committed_leader_epoch": epoch,
            "metadata": metadata,
            "error_code": error,
        }
        for p, offset, epoch, metadata, error in fetched[0][2]
    ]
    commit_rows = [{"partition_index": p[0], "error_code": 0} for p in commits[0][2]]
    rows: list[tuple[str, Callable[[], Any], Any]] = [
        (
            "Heartbeat v4",
            lambda: pack_heartbeat(4, 1, 0, 0),
            build(response_class(ApiKey.HEARTBEAT, 4), error_code=0),
        ),
        (
            "OffsetCommit v8 x10",
            lambda: pack_offset_commit(8, 1, 0, commits, 0),
            build(
                response_class(ApiKey.OFFSET_COMMIT, 8),
                topics=[{"name": "orders", "partitions": commit_rows}],
            ),
        ),
        (
            "OffsetFetch v7 x10",
            lambda: pack_offset_fetch(7, 1, 0, fetched, 0),
            build(
                response_class(ApiKey.OFFSET_FETCH, 7),
                topics=[{"name": "orders", "partitions": fetch_rows}],
                error_code=0,
            ),
        ),
    ]
    for name, hot, entity in rows:
        theirs = cpu_us(lambda entity=entity: written(entity))
        yield Figure("protocol", f"pack {name}", cpu_us(hot), f"kio {theirs:.2f}")


def writing() -> Iterator[Figure]:
    """Measure replies of the generated writer, and of kio from existing entities."""
    member = {"member_id": MEMBER, "group_instance_id": None, "metadata": b"m" * 300}
    join = {
        "error_code": 0,
        "generation_id": 5,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": MEMBER,
        "skip_assignment": False,
        "member_id": MEMBER,
    }
    sync = {
        "error_code": 0,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignment": b"a" * 200,
    }
    group = {
        "group_id": "orders",
        "protocol_type": "consumer",
        "group_state": "Stable",
        "group_type": "classic",
    }
    rows: list[tuple[str, ApiKey, int, dict[str, Any], str, list[dict[str, Any]]]] = [
        ("JoinGroup v9 x1000", ApiKey.JOIN_GROUP, 9, join, "members", [member] * 1000),
        ("JoinGroup v9", ApiKey.JOIN_GROUP, 9, join, "members", []),
        ("SyncGroup v5", ApiKey.SYNC_GROUP, 5, sync, "", []),
        ("ListGroups v5 x1000", ApiKey.LIST_GROUPS, 5, {"error_code": 0}, "groups", [group] * 1000),
    ]
    for name, key, version, values, array, items in rows:
        ready = build(response_class(key, version), **values, **({array: items} if array else {}))
        elements = {array: [Row(**item) for item in items]} if array else {}
        ours = cpu_us(
            lambda k=key, v=version, e=elements, vs=values: write_response(k, v, 1, 0, {**vs, **e}),
            50,
        )
        theirs = cpu_us(lambda entity=ready: written(entity), 5, 10)
        yield Figure("protocol", f"write {name}", ours, f"kio {theirs:.2f}")


def envelope() -> Iterator[Figure]:
    """Measure the frame and the header around a Heartbeat."""
    body = b"\0\x0c\0\x04\0\0\0\x01\0\x06orders\0" + heartbeat()
    frame = len(body).to_bytes(4, "big") + body
    splitter = FrameSplitter(1_000_000)
    yield Figure("protocol", "split a frame", cpu_us(lambda: splitter.feed(frame)))
    yield Figure("protocol", "read a header", cpu_us(lambda: read_request_header(frame)))


def figures() -> Iterator[Figure]:
    """Measure the frame and header of a message, then reading and writing."""
    yield from envelope()
    yield from reading()
    yield from packing()
    yield from writing()


if __name__ == "__main__":
    show(figures())
