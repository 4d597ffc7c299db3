"""The hot messages against the careful reader, kio's writer and aiokafka's classic codecs."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from aiokafka.protocol import commit as aiokafka_commit
from hypothesis import given, settings
from hypothesis import strategies as st

from groupkeeper.protocol.codec import read_request, request_class, response_class, uuid_to_topic_id
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.frames import read_request_header
from groupkeeper.protocol.last_requests import MAX_REPEATED_BYTES, LastRequests
from groupkeeper.protocol.packed.consumer_group_heartbeat import (
    consumer_group_heartbeat_body,
    pack_consumer_group_heartbeat,
    read_steady_heartbeat,
)
from groupkeeper.protocol.packed.heartbeat import pack_heartbeat, read_heartbeat
from groupkeeper.protocol.packed.offset_commit import (
    MAX_SHAPE_ROWS,
    pack_offset_commit,
    pack_offset_commit_results,
    read_offset_commit,
)
from groupkeeper.protocol.packed.offset_fetch import (
    pack_fetched_group,
    pack_fetched_groups,
    pack_offset_fetch,
    read_offset_fetch,
)
from groupkeeper.protocol.packing import printed_topic_id
from groupkeeper.protocol.versions import ApiKey
from tests.helpers.core.examples import examples
from tests.helpers.wire.kio_replies import build, write_response
from tests.helpers.wire.raw_client import encode_request
from tests.helpers.wire.wire_entities import entities, kio_bytes

SOME = settings(max_examples=examples(15), derandomize=True, deadline=None, database=None)
LIMIT = 10_000
THROTTLE_MS = 1_234
COMMIT, FETCH, HEARTBEAT = ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.HEARTBEAT

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
TOPIC_IDS = st.binary(min_size=16, max_size=16).map(printed_topic_id)
SIZES = st.sampled_from([0, 1, 2, 10, 255, 256, 257, 600])


# --- what is read ---------------------------------------------------------------------------------


def expected(api_key: int, version: int, request: Any) -> Any:
    """The plain tuple that a request as the careful reader reads it stands for."""
    if api_key == HEARTBEAT:
        instance = getattr(request, "group_instance_id", None)
        return request.group_id, request.generation_id, request.member_id, instance
    if api_key == COMMIT:
        return (
            request.group_id,
            getattr(request, "generation_id_or_member_epoch", -1),
            getattr(request, "member_id", ""),
            getattr(request, "group_instance_id", None),
            getattr(request, "retention_time", -1),
            [
                (*topic_key(topic), [commit_partition(p) for p in topic.partitions])
                for topic in request.topics
            ],
        )
    if version < 8:
        group = (request.group_id, None, -1, fetch_topics(request.topics))
        return [group], getattr(request, "require_stable", False)
    groups = [
        (
            group.group_id,
            getattr(group, "member_id", None),
            getattr(group, "member_epoch", -1),
            fetch_topics(group.topics),
        )
        for group in request.groups
    ]
    return groups, request.require_stable


def topic_key(topic: Any) -> tuple[str, str]:
    return getattr(topic, "name", ""), uuid_to_topic_id(getattr(topic, "topic_id", None))


def commit_partition(partition: Any) -> tuple[int, int, int, str | None]:
    epoch = getattr(partition, "committed_leader_epoch", -1)
    metadata = partition.committed_metadata
    return partition.partition_index, partition.committed_offset, epoch, metadata


def fetch_topics(topics: Any) -> Any:
    if topics is None:
        return None
    return [(*topic_key(topic), list(topic.partition_indexes)) for topic in topics]


READ = {
    HEARTBEAT: read_heartbeat,
    COMMIT: read_offset_commit,
    FETCH: read_offset_fetch,
}
VERSIONS = (
    [(HEARTBEAT, v) for v in range(5)]
    + [(COMMIT, v) for v in range(11)]
    + [(FETCH, v) for v in range(11)]
)
every_version = pytest.mark.parametrize(
    ("api_key", "version"), VERSIONS, ids=[f"{k.name.lower()}-v{v}" for k, v in VERSIONS]
)


def outcome(read: Any, *args: Any) -> Any:
    try:
        return read(*args)
    except ProtocolError as refused:
        return refused.reason


def bodies(api_key: int, version: int) -> st.SearchStrategy[bytes]:
    if (api_key, version) in ((COMMIT, 0), (COMMIT, 1)):
        return st.builds(aiokafka_commit_body, st.just(version), TEXT, INT32, TEXT, commit_topics())
    return entities(request_class(api_key, version)).map(kio_bytes)


@every_version
@SOME
@given(data=st.data())
def test_hot_readers_read_what_the_careful_reader_reads(
    api_key: ApiKey, version: int, data: st.DataObject
) -> None:
    body = data.draw(bodies(api_key, version))
    frame = b"head" + body + b"left over"
    request = read_request(api_key, version, frame, 4, LIMIT)
    assert READ[api_key](version, frame, 4, LIMIT) == expected(api_key, version, request)


@every_version
@SOME
@given(data=st.data())
def test_hot_readers_refuse_what_the_careful_reader_refuses(
    api_key: ApiKey, version: int, data: st.DataObject
) -> None:
    body = bytearray(data.draw(bodies(api_key, version)))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(body) - 1))
        body[position] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF]))
    frame = bytes(body)
    limit = data.draw(st.sampled_from([0, 3, LIMIT]))
    careful = outcome(
        lambda: expected(api_key, version, read_request(api_key, version, frame, 0, limit))
    )
    assert outcome(READ[api_key], version, frame, 0, limit) == careful


REMEMBERING = [(k, v) for k, v in VERSIONS if (k, v) == (HEARTBEAT, 4) or (k == COMMIT and v >= 8)]


@SOME
@given(data=st.data())
def test_who_asked_before_changes_nothing_for_who_asks_now(data: st.DataObject) -> None:
    last = LastRequests()
    frames: list[bytes] = []
    for api_key, version in data.draw(st.lists(st.sampled_from(REMEMBERING), max_size=6)):
        frame = bytearray(data.draw(bodies(api_key, version)))
        if frames and data.draw(st.booleans()):  # the same sender, or nearly the same
            size = data.draw(st.integers(0, len(frames[-1])))
            frame[:size] = frames[-1][:size]
        frames.append(bytes(frame))
        read = READ[api_key]
        fresh = outcome(read, version, frames[-1], 0, LIMIT)
        assert outcome(read, version, frames[-1], 0, LIMIT, last) == fresh
        assert len(last.raw) <= MAX_REPEATED_BYTES


PLAIN_ROW = st.tuples(
    st.integers(0, 3), st.integers(0, 2), st.just(-1), st.sampled_from(["", "", None])
)


def plain_commit(version: int, rows: list[tuple[Any, ...]], member_id: str, topic: str) -> bytes:
    """A commit of one topic, as a member sends it."""
    names = "partition_index", "committed_offset", "committed_leader_epoch", "committed_metadata"
    partitions = [dict(zip(names, row, strict=True)) for row in rows]
    where = {"topic_id": uuid.UUID(int=len(topic))} if version >= 10 else {"name": topic}
    values = {
        "group_id": "g",
        "generation_id_or_member_epoch": 1,
        "member_id": member_id,
        "topics": [{**where, "partitions": partitions}],
    }
    frame = encode_request("offset_commit", version, values, 7, "")
    return frame[read_request_header(frame).body_offset :]


@SOME
@given(data=st.data())
def test_the_shape_of_an_earlier_commit_changes_nothing(data: st.DataObject) -> None:
    last = LastRequests()
    for _ in range(data.draw(st.integers(2, 6))):
        version = data.draw(st.sampled_from([8, 9, 10]))
        size = data.draw(st.sampled_from([1, 2, MAX_SHAPE_ROWS, MAX_SHAPE_ROWS + 1]))
        rows = [data.draw(PLAIN_ROW)] * size
        member_id = data.draw(st.sampled_from(["m", "n", "m" * MAX_REPEATED_BYTES]))
        frame = bytearray(
            plain_commit(version, rows, member_id, data.draw(st.sampled_from(["a", "bc"])))
        )
        for _ in range(data.draw(st.integers(0, 3))):
            # one byte differs, or one is too many, or one is missing
            at = data.draw(st.integers(-20, -1))
            frame[at % len(frame)] = data.draw(st.sampled_from([0, 1, 2, 5]))
        frame = frame[: data.draw(st.sampled_from([-1, None, None, None]))]
        frame += data.draw(st.sampled_from([b"", b"", b"", b"\0"]))
        fresh = outcome(read_offset_commit, version, bytes(frame), 0, LIMIT)
        for _ in range(2):  # the second time it has the shape of the first
            again = outcome(read_offset_commit, version, bytes(frame), 0, LIMIT, last)
            assert again == fresh
            if last.commit is not None:
                for error in (25, 0, 0):
                    packed = pack_offset_commit(version, 7, THROTTLE_MS, again[5], error)
                    assert last.commit.pack(7, THROTTLE_MS, error) == packed


@pytest.mark.parametrize("version", [8, 9, 10])
def test_a_commit_of_the_same_shape_is_read_by_its_shape(version: int) -> None:
    last = LastRequests()
    read_offset_commit(version, plain_commit(version, [(3, 10, -1, "")], "m", "a"), 0, LIMIT, last)
    shape = last.commit
    again = plain_commit(version, [(3, 11, 5, "")], "m", "a")
    assert read_offset_commit(version, again, 0, LIMIT, last)[5][0][2] == [(3, 11, 5, "")]
    assert last.commit is shape
    for other in (
        plain_commit(version, [(4, 11, 5, "")], "m", "a"),
        plain_commit(version, [(3, 11, 5, None)], "m", "a"),
        plain_commit(version, [(3, 11, 5, "")], "n", "a"),
        plain_commit(version, [(3, 11, 5, "")], "m", "bc"),
        plain_commit(version, [(3, 11, 5, ""), (4, 1, 1, "")], "m", "a"),
    ):
        assert shape.read(other, 0) is None


def test_a_commit_that_is_long_or_has_metadata_leaves_no_shape() -> None:
    for rows, member_id in (
        ([(3, 10, -1, "note")], "m"),
        ([(3, 10, -1, "")] * (MAX_SHAPE_ROWS + 1), "m"),
        ([(3, 10, -1, "")], "m" * MAX_REPEATED_BYTES),
    ):
        last = LastRequests()
        read_offset_commit(9, plain_commit(9, [(3, 10, -1, "")], "m", "a"), 0, LIMIT, last)
        read_offset_commit(9, plain_commit(9, rows, member_id, "a"), 0, LIMIT, last)
        assert last.commit is None


# --- what is packed -------------------------------------------------------------------------------


def topics_of(partition: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Topics of a few partitions, and now and then one with more than a struct takes at once."""
    few = st.lists(partition, max_size=4)
    many = st.builds(lambda p, n: [p] * n, partition, SIZES)
    return st.lists(st.tuples(TEXT, TOPIC_IDS, few | many), max_size=3)


def commit_topics() -> st.SearchStrategy[Any]:
    return topics_of(st.tuples(INT32, INT64, INT32, st.just("") | TEXT))


@pytest.mark.parametrize("version", range(5))
@SOME
@given(correlation_id=INT32, error=st.sampled_from([0, 15, 16, 22, 25, 27, 82]))
def test_heartbeat_replies_are_those_of_kio(version: int, correlation_id: int, error: int) -> None:
    entity = build(response_class(HEARTBEAT, version), throttle_time=THROTTLE_MS, error_code=error)
    frame = write_response(HEARTBEAT, version, correlation_id, entity)
    assert pack_heartbeat(version, correlation_id, THROTTLE_MS, error) == frame


@pytest.mark.parametrize("version", range(11))
@SOME
@given(correlation_id=INT32, topics=commit_topics(), error=st.sampled_from([0, 16, 22, 27]))
def test_commit_replies_with_one_error_are_those_of_kio(
    version: int, correlation_id: int, topics: Any, error: int
) -> None:
    results = [(name, i, [(p[0], error) for p in partitions]) for name, i, partitions in topics]
    frame = kio_commit_reply(version, correlation_id, results)
    assert pack_offset_commit(version, correlation_id, THROTTLE_MS, topics, error) == frame


@pytest.mark.parametrize("version", range(11))
@SOME
@given(correlation_id=INT32, data=st.data())
def test_commit_replies_with_their_own_errors_are_those_of_kio(
    version: int, correlation_id: int, data: st.DataObject
) -> None:
    results = data.draw(topics_of(st.tuples(INT32, st.sampled_from([0, 3, 12, 100]))))
    frame = kio_commit_reply(version, correlation_id, results)
    assert pack_offset_commit_results(version, correlation_id, THROTTLE_MS, results) == frame


def kio_commit_reply(version: int, correlation_id: int, topics: Any) -> bytes:
    entity = build(
        response_class(COMMIT, version),
        throttle_time=THROTTLE_MS,
        topics=[
            {
                "name": name,
                "topic_id": topic_id,
                "partitions": [{"partition_index": p, "error_code": e} for p, e in partitions],
            }
            for name, topic_id, partitions in topics
        ],
    )
    return write_response(COMMIT, version, correlation_id, entity)


FETCHED = topics_of(
    st.tuples(INT32, INT64, INT32, st.just("") | TEXT, st.sampled_from([0, 3, 100]))
)


def fetched(topics: Any) -> Any:
    return [
        {
            "name": name,
            "topic_id": topic_id,
            "partitions": [
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": epoch,
                    "metadata": metadata,
                    "error_code": error,
                }
                for partition, offset, epoch, metadata, error in partitions
            ],
        }
        for name, topic_id, partitions in topics
    ]


@pytest.mark.parametrize("version", range(8))
@SOME
@given(correlation_id=INT32, topics=FETCHED, error=st.sampled_from([0, 14, 16]))
def test_fetch_replies_are_those_of_kio(
    version: int, correlation_id: int, topics: Any, error: int
) -> None:
    entity = build(
        response_class(FETCH, version),
        throttle_time=THROTTLE_MS,
        topics=fetched(topics),
        error_code=error,
    )
    frame = write_response(FETCH, version, correlation_id, entity)
    assert pack_offset_fetch(version, correlation_id, THROTTLE_MS, topics, error) == frame


@pytest.mark.parametrize("version", range(8, 11))
@SOME
@given(
    correlation_id=INT32,
    groups=st.lists(st.tuples(TEXT, FETCHED, st.sampled_from([0, 14, 16])), max_size=3),
)
def test_fetch_replies_of_groups_are_those_of_kio(
    version: int, correlation_id: int, groups: Any
) -> None:
    entity = build(
        response_class(FETCH, version),
        throttle_time=THROTTLE_MS,
        groups=[
            {"group_id": group_id, "topics": fetched(topics), "error_code": error}
            for group_id, topics, error in groups
        ],
    )
    frame = write_response(FETCH, version, correlation_id, entity)
    pieces = [piece for g in groups for piece in pack_fetched_group(version, *g)]
    ours = pack_fetched_groups(correlation_id, THROTTLE_MS, len(groups), pieces)
    assert ours == frame


# --- consumer groups ------------------------------------------------------------------------------

CONSUMER_HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
UNCHANGED = {
    "rack_id": None,
    "rebalance_timeout": -1,
    "subscribed_topic_names": None,
    "subscribed_topic_regex": None,
    "server_assignor": None,
    "topic_partitions": None,
}


@pytest.mark.parametrize("version", range(2))
@SOME
@given(data=st.data())
def test_a_steady_heartbeat_is_what_the_careful_reader_reads_without_a_change(
    version: int, data: st.DataObject
) -> None:
    schema = request_class(CONSUMER_HEARTBEAT, version)
    body = bytearray(data.draw(entities(schema).map(kio_bytes)))
    if data.draw(st.booleans()):
        steady = build(
            schema,
            group_id=data.draw(TEXT),
            member_id=data.draw(TEXT),
            member_epoch=data.draw(INT32),
            instance_id=data.draw(st.none() | TEXT),
            **{name: value for name, value in UNCHANGED.items() if name in schema.__slots__},
        )
        body = bytearray(kio_bytes(steady))
    for _ in range(data.draw(st.integers(0, 2))):
        position = data.draw(st.integers(0, len(body) - 1))
        body[position] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF]))
    frame = b"head" + bytes(body)
    careful = outcome(read_request, CONSUMER_HEARTBEAT, version, frame, 4, LIMIT)
    steady_of = read_steady_heartbeat(version, frame, 4)
    if steady_of is None:
        return
    assert steady_of == (
        careful.group_id,
        careful.member_epoch,
        careful.member_id,
        careful.instance_id,
    )
    assert careful.member_epoch > 0
    for name, value in UNCHANGED.items():
        assert getattr(careful, name, value) == value


@pytest.mark.parametrize("version", range(2))
@SOME
@given(
    correlation_id=INT32,
    error=st.sampled_from([0, 25, 110]),
    member_id=st.none() | TEXT,
    epoch=INT32,
    interval=INT32,
)
def test_replies_to_steady_heartbeats_are_those_of_kio(
    version: int, correlation_id: int, error: int, member_id: str | None, epoch: int, interval: int
) -> None:
    entity = build(
        response_class(CONSUMER_HEARTBEAT, version),
        throttle_time=THROTTLE_MS,
        error_code=error,
        error_message=None,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval=interval,
        assignment=None,
    )
    frame = write_response(CONSUMER_HEARTBEAT, version, correlation_id, entity)
    body = consumer_group_heartbeat_body(error, member_id, epoch, interval)
    assert pack_consumer_group_heartbeat(correlation_id, THROTTLE_MS, body) == frame


# --- aiokafka's classic versions ------------------------------------------------------------------


def aiokafka_commit_body(
    version: int, group_id: str, generation: int, member_id: str, topics: Any
) -> bytes:
    """OffsetCommit v0-3 by aiokafka, whose schemas are the only ones of v0 and v1."""
    extra = (5,) if version == 1 else ()
    wire_topics = [
        (name, [(p, offset, *extra, metadata) for p, offset, _, metadata in partitions])
        for name, _, partitions in topics
    ]
    kind = getattr(aiokafka_commit, f"OffsetCommitRequest_v{version}")
    fields = (group_id, wire_topics)
    if version >= 1:
        fields = (group_id, generation, member_id, wire_topics)
    if version >= 2:
        fields = (group_id, generation, member_id, 9, wire_topics)
    request = kind(*fields)  # kept: in aiokafka 0.10 `encode` knows its request weakly
    return request.encode()


@pytest.mark.parametrize("version", range(4))
@SOME
@given(group_id=TEXT, generation=INT32, member_id=TEXT, topics=commit_topics())
def test_commits_of_aiokafka_are_read(
    version: int, group_id: str, generation: int, member_id: str, topics: Any
) -> None:
    body = aiokafka_commit_body(version, group_id, generation, member_id, topics)
    assert read_offset_commit(version, body, 0, 10_000) == (
        group_id,
        generation if version >= 1 else -1,
        member_id if version >= 1 else "",
        None,
        9 if version >= 2 else -1,
        [(name, "", [(p, o, -1, m) for p, o, _, m in rows]) for name, _, rows in topics],
    )


@pytest.mark.parametrize("version", range(4))
@SOME
@given(group_id=TEXT, topics=topics_of(INT32))
def test_fetches_of_aiokafka_are_read(version: int, group_id: str, topics: Any) -> None:
    kind = getattr(aiokafka_commit, f"OffsetFetchRequest_v{version}")
    request = kind(group_id, [(name, rows) for name, _, rows in topics])
    body = request.encode()
    groups = [(group_id, None, -1, [(name, "", rows) for name, _, rows in topics])]
    assert read_offset_fetch(version, body, 0, 10_000) == (groups, False)


@pytest.mark.parametrize("version", range(4))
@SOME
@given(topics=commit_topics(), error=INT16)
def test_commit_replies_are_read_by_aiokafka(version: int, topics: Any, error: int) -> None:
    frame = pack_offset_commit(version, 7, THROTTLE_MS, topics, error)
    reply = getattr(aiokafka_commit, f"OffsetCommitResponse_v{version}").decode(frame[8:])
    assert reply.topics == [(name, [(p[0], error) for p in rows]) for name, _, rows in topics]


@pytest.mark.parametrize("version", range(4))
@SOME
@given(topics=FETCHED, error=INT16)
def test_fetch_replies_are_read_by_aiokafka(version: int, topics: Any, error: int) -> None:
    frame = pack_offset_fetch(version, 7, THROTTLE_MS, topics, error)
    reply = getattr(aiokafka_commit, f"OffsetFetchResponse_v{version}").decode(frame[8:])
    assert reply.topics == [
        (name, [(p, offset, text, code) for p, offset, _, text, code in rows])
        for name, _, rows in topics
    ]
    if version >= 2:
        assert reply.error_code == error
