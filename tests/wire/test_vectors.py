"""Frames captured from real clients are read as kio reads them, and the hot readers agree.

``tests/wire/capture.py`` wrote the vectors; each file says where its frames come from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kio.serial import entity_reader

from groupkeeper.protocol.codec import read_request, request_class, response_class, write_response
from groupkeeper.protocol.frames import has_flexible_response_header, read_request_header
from groupkeeper.protocol.packed.heartbeat import read_heartbeat
from groupkeeper.protocol.packed.offset_commit import read_offset_commit
from groupkeeper.protocol.packed.offset_fetch import read_offset_fetch
from groupkeeper.protocol.reader import read_entity
from groupkeeper.protocol.versions import API_BY_KEY, ApiKey
from tests.helpers.wire.wire_entities import plain, response_values

LIMIT = 1000
FILES = sorted(Path(__file__).with_name("vectors").glob("*.json"))


def frames(direction: str) -> list[Any]:
    """Each captured frame of an API and version that we serve, with its length put in front."""
    found = []
    for path in FILES:
        for number, frame in enumerate(json.loads(path.read_text())["frames"]):
            api = API_BY_KEY.get(frame["api_key"])
            if frame["direction"] != direction or api is None:
                continue
            if not api.min_version <= frame["api_version"] <= api.max_version:
                continue
            raw = bytes.fromhex(frame["hex"])
            key, version = frame["api_key"], frame["api_version"]
            name = f"{path.stem}-{number}-{api.name}-v{version}"
            data = len(raw).to_bytes(4, "big") + raw
            found.append(pytest.param(key, version, data, id=name))
    return found


def test_there_are_vectors_of_four_clients() -> None:
    assert {path.stem for path in FILES} >= {"aiokafka", "java", "kafka-python", "librdkafka"}


@pytest.mark.parametrize(("api_key", "version", "frame"), frames("request"))
def test_requests(api_key: int, version: int, frame: bytes) -> None:
    header = read_request_header(frame)
    assert (header.api_key, header.api_version) == (api_key, version)
    request = read_request(api_key, version, frame, header.body_offset, LIMIT)
    body = frame[header.body_offset :]
    theirs, size = entity_reader(request_class(api_key, version))(body, 0)
    assert size == len(body)
    assert plain(request) == plain(theirs)


HOT = {
    ApiKey.HEARTBEAT: read_heartbeat,
    ApiKey.OFFSET_COMMIT: read_offset_commit,
    ApiKey.OFFSET_FETCH: read_offset_fetch,
}


@pytest.mark.parametrize(
    ("api_key", "version", "frame"), [f for f in frames("request") if f.values[0] in HOT]
)
def test_hot_requests(api_key: ApiKey, version: int, frame: bytes) -> None:
    header = read_request_header(frame)
    request = read_request(api_key, version, frame, header.body_offset, LIMIT)
    hot: Any = HOT[api_key](version, frame, header.body_offset, LIMIT)
    if api_key == ApiKey.OFFSET_FETCH:
        groups, require_stable = hot
        assert require_stable == getattr(request, "require_stable", False)
        assert [g[0] for g in groups] == [g.group_id for g in getattr(request, "groups", [request])]
        return
    assert hot[0] == request.group_id
    assert hot[2] == request.member_id
    if api_key == ApiKey.OFFSET_COMMIT:
        offsets = [p[1] for _, _, partitions in hot[5] for p in partitions]
        assert offsets == [p.committed_offset for t in request.topics for p in t.partitions]


@pytest.mark.parametrize(("api_key", "version", "frame"), frames("response"))
def test_responses_of_kafka_are_written_as_they_came(
    api_key: int, version: int, frame: bytes
) -> None:
    flexible = has_flexible_response_header(api_key, version)
    entity_type = response_class(api_key, version)
    theirs, _ = entity_reader(entity_type)(frame[9 if flexible else 8 :], 0)
    ours = read_entity(entity_type, frame, 9 if flexible else 8, 100_000)
    assert plain(ours) == plain(theirs) or api_key == ApiKey.PRODUCE
    throttle_time_ms, values = response_values(theirs)
    correlation_id = int.from_bytes(frame[4:8], "big")
    assert write_response(api_key, version, correlation_id, throttle_time_ms, values) == frame
