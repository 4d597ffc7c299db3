"""Where fuzzing begins: conversations of every API and version, and the frames of real clients.

``python -m tests.fuzz.seeds`` writes those that are missing into ``tests/fuzz/corpus``. A target
mints ids by counting, so the member id that a conversation is handed is known beforehand.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from groupkeeper.protocol.codec import request_class
from groupkeeper.protocol.versions import API_BY_KEY, APIS
from tests.fuzz.target import split
from tests.helpers.wire.raw_client import API_KEYS, encode_request
from tests.helpers.wire.wire_entities import encode, sample, served

CORPUS = Path(__file__).with_name("corpus")
VECTORS = Path(__file__).parent.parent / "wire" / "vectors"
CLIENT_ID = "fz"
_NAMES = {key: name for name, key in API_KEYS.items()}


def member(number: int) -> str:
    """The id that a target hands to the member that asks as the n-th; the topic's comes first."""
    return f"{CLIENT_ID}-{uuid.UUID(int=number + 1)}"


def _latest(api: str, behind: int = 0) -> int:
    entry = API_BY_KEY[next(each.key for each in APIS if each.key == API_KEYS[api])]
    return max(entry.min_version, entry.max_version - behind)


def life(behind: int) -> bytes:
    """A member's life: joins, syncs, heartbeats, commits, fetches, leaves; then admin calls."""
    me = member(1)
    number = iter(range(1, 100))
    version = {api: _latest(api, behind) for api in API_KEYS}
    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "x"}]
    topic_id = uuid.UUID(int=1)
    in_group: dict[str, Any] = {"group_id": "g", "member_id": me, "generation_id": 1}
    join = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 20_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes.fromhex("0001000000010006") + b"orders"}],
    }
    modern = {
        "group_id": "g",
        "member_id": "m",
        "rebalance_timeout": 20_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    }
    calls: list[tuple[str, dict[str, Any]]] = [
        ("api_versions", {"client_software_name": "fz", "client_software_version": "1"}),
        ("metadata", {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True}),
        ("find_coordinator", {"key": "g", "coordinator_keys": ["g"]}),
        ("join_group", {**join, "member_id": ""}),
        ("join_group", {**join, "member_id": me}),
        (
            "sync_group",
            {
                **in_group,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": [{"member_id": me, "assignment": b"\0\1"}],
            },
        ),
        ("heartbeat", in_group),
        (
            "offset_commit",
            {
                "group_id": "g",
                "generation_id_or_member_epoch": 1,
                "member_id": me,
                "topics": [{"name": "orders", "topic_id": topic_id, "partitions": partitions}],
            },
        ),
        (
            "offset_fetch",
            {
                "group_id": "g",
                "topics": [{"name": "orders", "partition_indexes": [0, 1]}],
                "groups": [{"group_id": "g", "member_epoch": -1, "topics": None}],
            },
        ),
        ("describe_groups", {"groups": ["g"]}),
        ("list_groups", {}),
        ("leave_group", {"group_id": "g", "member_id": me, "members": [{"member_id": me}]}),
        ("offset_delete", {"group_id": "g", "topics": [{"name": "orders", "partitions": [{}]}]}),
        ("delete_groups", {"groups_names": ["g"]}),
        ("consumer_group_heartbeat", {**modern, "member_epoch": 0}),
        ("consumer_group_describe", {"group_ids": ["g"]}),
        ("join_group", {**join, "member_id": "classic"}),
        ("consumer_group_heartbeat", {"group_id": "g", "member_id": "m", "member_epoch": 2}),
        ("consumer_group_heartbeat", {"group_id": "g", "member_id": "m", "member_epoch": -1}),
    ]
    return b"".join(
        encode_request(api, version[api], values, next(number), CLIENT_ID) for api, values in calls
    )


def every_request() -> Iterator[bytes]:
    """One request of each API and version, nothing in it null or empty."""
    for key, version in served():
        body, _ = encode(sample(request_class(key, version)))
        frame = encode_request(_NAMES[key], version, {}, 1, CLIENT_ID)
        empty, _ = encode(_empty(key, version))
        head = frame[4:].removesuffix(empty)
        yield (len(head) + len(body)).to_bytes(4, "big") + head + body


def _empty(key: int, version: int) -> Any:
    from tests.helpers.wire.raw_client import from_plain

    return from_plain(request_class(key, version), {})


def captured() -> Iterator[bytes]:
    """What real clients sent, one frame for each API and version."""
    seen = set()
    for path in sorted(VECTORS.glob("*.json")):
        for frame in json.loads(path.read_text())["frames"]:
            kind = (frame["api_key"], frame["api_version"])
            if frame["direction"] == "request" and kind not in seen:
                seen.add(kind)
                raw = bytes.fromhex(frame["hex"])
                yield len(raw).to_bytes(4, "big") + raw


def seeds() -> list[bytes]:
    """All of them."""
    return [*(life(behind) for behind in range(10)), *every_request(), *captured()]


def name_of(data: bytes) -> str:
    """What a file of the corpus is called; libFuzzer's own way."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def main() -> int:
    """Write what is missing."""
    CORPUS.mkdir(exist_ok=True)
    written = 0
    for data in seeds():
        assert split(data), "a seed has a whole frame"
        file = CORPUS / name_of(data)
        if not file.exists():
            file.write_bytes(data)
            written += 1
    print(f"{written} seeds written, {len(list(CORPUS.iterdir()))} files in {CORPUS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
