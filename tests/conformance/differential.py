"""The same requests to a real Apache Kafka and to the daemon, answers compared field by field.

    python -m tests.conformance.differential KAFKA_PORT OUR_PORT

Both need a topic ``orders`` of 12 partitions and no initial rebalance delay. Run by hand. Each case
has a group of its own on each side; what must differ (minted member ids, addresses, times) is
replaced by the order of its appearance before the comparison.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import uuid
from typing import TYPE_CHECKING, Any

from tests.helpers.raw_client import API_KEYS, RawClient, encode_request

if TYPE_CHECKING:
    from collections.abc import Callable

TOPIC = "orders"
RANDOM_IDS = ("member_id", "leader")


class Side:
    """One of the two: sends, and keeps each answer in comparable form."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answers: list[tuple[str, Any]] = []
        self._names: dict[str, str] = {}
        self.client = RawClient(port, client_id="differential", timeout_s=20)
        self.other = RawClient(port, client_id="differential", timeout_s=20)

    def __call__(self, api: str, version: int, **values: Any) -> dict[str, Any]:
        """Send, keep and return the answer; a closed connection is one, too."""
        try:
            answer = self.client.call(api, version, **values)
        except ConnectionError:
            self.client = RawClient(self.port, client_id="differential", timeout_s=20)
            answer = {"closed": True}
        return self.keep(f"{api} v{version} {_short(values)}", answer)

    def keep(self, what: str, answer: dict[str, Any]) -> dict[str, Any]:
        self.answers.append((what, self._comparable("", answer)))
        return answer

    def learn(self, minted: str) -> str:
        """A minted id is called by its number from here on."""
        if minted:
            self._names.setdefault(minted, f"<id {len(self._names)}>")
        return minted

    def close(self) -> None:
        self.client.close()
        self.other.close()

    def _comparable(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            if "member_id" in value and isinstance(value["member_id"], str):
                self.learn(value["member_id"])
            return {key: self._comparable(key, item) for key, item in value.items()}
        if isinstance(value, list):
            items = [self._comparable(name, item) for item in value]
            return sorted(items, key=lambda item: json.dumps(item, default=str))
        if isinstance(value, str):
            if value in self._names:
                return self._names[value]
            if name == "message" or name == "error_message":
                return "<text>" if value else value
            return value
        if isinstance(value, bytes):
            return value.hex()
        return value


def _short(values: dict[str, Any]) -> str:
    text = json.dumps(values, default=lambda v: v.hex() if isinstance(v, bytes) else str(v))
    return text if len(text) < 300 else text[:300] + "…"


def _join(group: str, member_id: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 20_000,
        "rebalance_timeout": 20_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\6orders\0\0\0\0"}],
        **more,
    }


def _offsets(topic: str = TOPIC, *, offset: int = 5, metadata: str | None = "", n: int = 2) -> Any:
    parts = [
        {"partition_index": p, "committed_offset": offset + p, "committed_metadata": metadata}
        for p in range(n)
    ]
    return [{"name": topic, "partitions": parts}]


def _stable(side: Side, group: str, version: int = 3, **more: Any) -> tuple[str, int]:
    """A group of one member, Stable."""
    joined = side("join_group", version, **_join(group, **more))
    member_id, generation = joined["member_id"], joined["generation_id"]
    side(
        "sync_group",
        3,
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=more.get("group_instance_id"),
        assignments=[{"member_id": member_id, "assignment": b"mine"}],
    )
    return member_id, generation


# --- the cases -----------------------------------------------------------------------------------


def join_versions(side: Side, group: str) -> None:
    for version in range(10):
        mine = f"{group}-{version}"
        first = side("join_group", version, **_join(mine))
        if first["error_code"] == 79:
            side("join_group", version, **_join(mine, first["member_id"]))


def join_errors(side: Side, group: str) -> None:
    for version in (0, 4, 6, 7, 9):
        side("join_group", version, **_join("", "x"))
        side("join_group", version, **_join(group, "unknown-member"))
        side("join_group", version, **_join(group, session_timeout=5))
        side("join_group", version, **_join(group, session_timeout=10_000_000))
        side("join_group", version, **_join(group, protocols=[]))
        side("join_group", version, **_join(group, protocol_type=""))
    _stable(side, group)
    for version in (3, 9):
        side("join_group", version, **_join(group, protocol_type="connect"))
        side("join_group", version, **_join(group, protocols=[{"name": "no", "metadata": b""}]))
    side("describe_groups", 6, groups=[group])


def pending_ids(side: Side, group: str) -> None:
    member_id = side("join_group", 4, **_join(group))["member_id"]
    side("describe_groups", 5, groups=[group])
    side("heartbeat", 4, group_id=group, generation_id=0, member_id=member_id)
    side("sync_group", 3, group_id=group, generation_id=0, member_id=member_id)
    side("leave_group", 3, group_id=group, members=[{"member_id": member_id}])
    side("join_group", 4, **_join(group, member_id))
    side("describe_groups", 5, groups=[group])


def sync_errors(side: Side, group: str) -> None:
    for version in range(6):
        side(
            "sync_group",
            version,
            group_id="",
            generation_id=1,
            member_id="x",
            protocol_type="consumer",
            protocol_name="range",
        )
        side(
            "sync_group",
            version,
            group_id=group + "-absent",
            generation_id=1,
            member_id="x",
            protocol_type="consumer",
            protocol_name="range",
        )
    member_id, generation = _stable(side, group)
    for version in range(6):
        good: dict[str, Any] = {
            "group_id": group,
            "generation_id": generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
        }
        side("sync_group", version, **good)
        side("sync_group", version, **{**good, "generation_id": generation + 1})
        side("sync_group", version, **{**good, "member_id": "other"})
        side("sync_group", version, **{**good, "protocol_type": "connect"})
        side("sync_group", version, **{**good, "protocol_name": "sticky"})
        side("sync_group", version, **{**good, "protocol_name": None})


def heartbeats(side: Side, group: str) -> None:
    for version in range(5):
        side("heartbeat", version, group_id="", generation_id=1, member_id="x")
        side("heartbeat", version, group_id=group + "-absent", generation_id=1, member_id="x")
    member_id, generation = _stable(side, group)
    for version in range(5):
        for g in (generation, generation - 1, generation + 1, -1):
            side("heartbeat", version, group_id=group, generation_id=g, member_id=member_id)
        side("heartbeat", version, group_id=group, generation_id=generation, member_id="")
        side("heartbeat", version, group_id=group, generation_id=generation, member_id="other")
    side(
        "heartbeat",
        4,
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id="no-such",
    )


def leaves(side: Side, group: str) -> None:
    for version in range(6):
        mine = f"{group}-{version}"
        many = {"members": [{"member_id": "x"}, {"member_id": "", "group_instance_id": "i"}]}
        side("leave_group", version, group_id="", member_id="x", **many)
        side("leave_group", version, group_id=mine, member_id="x", **many)
        member_id, generation = _stable(side, mine)
        side("leave_group", version, group_id=mine, member_id="x", **many)
        if version >= 3:
            side("leave_group", version, group_id=mine, members=[])
        side(
            "leave_group",
            version,
            group_id=mine,
            member_id=member_id,
            members=[{"member_id": member_id}, {"member_id": member_id}],
        )
        side("heartbeat", 4, group_id=mine, generation_id=generation, member_id=member_id)
        side("describe_groups", 6, groups=[mine])
        again = side("join_group", 3, **_join(mine))
        assert again["error_code"] == 0


def static_members(side: Side, group: str) -> None:
    for version in (5, 8, 9):
        mine = f"{group}-{version}"
        old, generation = _stable(side, mine, version, group_instance_id="i-1")
        side("describe_groups", 5, groups=[mine])
        back = side("join_group", version, **_join(mine, group_instance_id="i-1"))
        side(
            "heartbeat",
            4,
            group_id=mine,
            generation_id=generation,
            member_id=old,
            group_instance_id="i-1",
        )
        side("heartbeat", 4, group_id=mine, generation_id=generation, member_id=old)
        side(
            "heartbeat",
            4,
            group_id=mine,
            generation_id=generation,
            member_id=back["member_id"],
            group_instance_id="i-1",
        )
        side(
            "sync_group",
            3,
            group_id=mine,
            generation_id=generation,
            member_id=old,
            group_instance_id="i-1",
        )
        side(
            "sync_group",
            3,
            group_id=mine,
            generation_id=generation,
            member_id=back["member_id"],
            group_instance_id="i-1",
        )
        side(
            "offset_commit",
            8,
            group_id=mine,
            generation_id_or_member_epoch=generation,
            member_id=old,
            group_instance_id="i-1",
            topics=_offsets(),
        )
        side("join_group", version, **_join(mine, old, group_instance_id="i-1"))
        side("join_group", version, **_join(mine, "strange", group_instance_id="i-2"))
        side("describe_groups", 5, groups=[mine])
        side(
            "leave_group",
            4,
            group_id=mine,
            members=[{"member_id": old, "group_instance_id": "i-1"}],
        )
        side(
            "leave_group", 4, group_id=mine, members=[{"member_id": "", "group_instance_id": "i-1"}]
        )
        side("describe_groups", 5, groups=[mine])


def rebalances(side: Side, group: str) -> None:
    first, generation = _stable(side, group)
    parked = side.other.send("join_group", 3, **_join(group))
    while True:
        code = side.client.call(
            "heartbeat", 4, group_id=group, generation_id=generation, member_id=first
        )["error_code"]
        if code == 27:
            break
    side("describe_groups", 5, groups=[group])
    side(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=first,
        topics=_offsets(),
    )
    side("sync_group", 3, group_id=group, generation_id=generation, member_id=first)
    side("join_group", 3, **_join(group, first))
    second = side.keep("the parked join", side.other.receive("join_group", 3, parked))["member_id"]
    side("describe_groups", 5, groups=[group])
    side("list_groups", 4, states_filter=["CompletingRebalance"])
    generation += 1
    side("heartbeat", 4, group_id=group, generation_id=generation, member_id=first)
    side("heartbeat", 4, group_id=group, generation_id=generation - 1, member_id=first)
    side(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=first,
        topics=_offsets(),
    )
    side(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=generation - 1,
        member_id=first,
        topics=_offsets(),
    )
    side("join_group", 3, **_join(group, first))
    parked = side.other.send(
        "sync_group", 3, group_id=group, generation_id=generation, member_id=second
    )
    side(
        "sync_group",
        3,
        group_id=group,
        generation_id=generation,
        member_id=first,
        assignments=[
            {"member_id": first, "assignment": b"a"},
            {"member_id": "nobody", "assignment": b"x"},
        ],
    )
    side.keep("the parked sync", side.other.receive("sync_group", 3, parked))
    side("describe_groups", 5, groups=[group])
    # A follower that rejoins unchanged, then one that changes what it says.
    side("join_group", 3, **_join(group, second))
    side("leave_group", 3, group_id=group, members=[{"member_id": second}])
    side("heartbeat", 4, group_id=group, generation_id=generation, member_id=first)
    side("join_group", 3, **_join(group, first))


def commits(side: Side, group: str) -> None:
    for version in range(2, 10):
        mine = f"{group}-{version}"
        for generation, member_id in ((-1, ""), (-1, "x"), (0, ""), (5, "x")):
            side(
                "offset_commit",
                version,
                group_id=f"{mine}-{generation}-{member_id}",
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                retention_time_ms=-1,
                topics=_offsets(),
            )
        side(
            "offset_commit",
            version,
            group_id=mine,
            generation_id_or_member_epoch=-1,
            retention_time_ms=-1,
            topics=_offsets("absent") + _offsets(n=13),
        )
        side(
            "offset_commit",
            version,
            group_id=mine,
            generation_id_or_member_epoch=-1,
            retention_time_ms=-1,
            topics=_offsets(metadata=None, offset=-7),
        )
        side(
            "offset_commit",
            version,
            group_id=mine,
            generation_id_or_member_epoch=-1,
            retention_time_ms=-1,
            topics=_offsets(metadata="x" * 4097),
        )
        side(
            "offset_commit",
            version,
            group_id=mine,
            generation_id_or_member_epoch=9,
            member_id="m",
            retention_time_ms=-1,
            topics=[],
        )
        side(
            "offset_commit",
            version,
            group_id=mine,
            generation_id_or_member_epoch=9,
            member_id="m",
            retention_time_ms=-1,
            topics=_offsets(),
        )
        side("offset_fetch", 5, group_id=mine, topics=None)
        side("describe_groups", 6, groups=[mine])
    member_id, generation = _stable(side, group)
    for g, m in (
        (-1, ""),
        (-1, member_id),
        (generation, ""),
        (generation, member_id),
        (generation - 1, member_id),
        (generation + 1, member_id),
        (generation, "other"),
    ):
        for version in (2, 8, 9):
            side(
                "offset_commit",
                version,
                group_id=group,
                generation_id_or_member_epoch=g,
                member_id=m,
                retention_time_ms=-1,
                topics=_offsets(),
            )
    side(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id="no-such",
        topics=_offsets(),
    )
    zero = [{"topic_id": None, "partitions": _offsets()[0]["partitions"]}]
    strange = [{"topic_id": uuid.UUID(int=7), "partitions": _offsets()[0]["partitions"]}]
    side(
        "offset_commit",
        10,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=zero + strange,
    )


def fetches(side: Side, group: str) -> None:
    side("offset_commit", 8, group_id=group, generation_id_or_member_epoch=-1, topics=_offsets())
    some = [
        {"name": TOPIC, "partition_indexes": [0, 1, 5, 99]},
        {"name": "absent", "partition_indexes": [0]},
    ]
    for version in range(1, 8):
        side("offset_fetch", version, group_id=group, topics=some)
        side("offset_fetch", version, group_id=group + "-absent", topics=some)
        if version >= 2:
            side("offset_fetch", version, group_id=group, topics=None)
            side("offset_fetch", version, group_id=group + "-absent", topics=None)
    for version in (8, 9):
        side(
            "offset_fetch",
            version,
            require_stable=True,
            groups=[
                {"group_id": group, "topics": some, "member_id": "garbage", "member_epoch": 4},
                {"group_id": group, "topics": None},
                {"group_id": group + "-absent", "topics": None},
                {"group_id": group, "topics": []},
            ],
        )
    side(
        "offset_fetch",
        10,
        groups=[
            {
                "group_id": group,
                "topics": [{"topic_id": uuid.UUID(int=9), "partition_indexes": [0, 3]}],
            }
        ],
    )


def coordinators(side: Side, group: str) -> None:
    for version in range(7):
        for kind in (0, 1, 2):
            answer = side.client.call(
                "find_coordinator", version, key=group, key_type=kind, coordinator_keys=[group, ""]
            )
            for entry in [answer, *answer.get("coordinators", [])]:
                for field in ("port", "node_id", "host"):
                    if entry.get(field) not in (None, "", -1):
                        entry[field] = "<address>"
            if kind == 0:
                side.keep(f"find_coordinator v{version} key_type {kind}", answer)


def describes(side: Side, group: str) -> None:
    _stable(side, group)
    for version in range(7):
        side(
            "describe_groups",
            version,
            groups=[group, group + "-absent", "", group],
            include_authorized_operations=False,
        )
    side("describe_groups", 5, groups=[group], include_authorized_operations=True)
    for version in (4, 5):
        side("list_groups", version, states_filter=["Nonsense"])
        side("list_groups", version, states_filter=["Dead"])


def offsets_of_partitions(side: Side, _: str) -> None:
    for version in range(1, 10):
        side(
            "list_offsets",
            version,
            replica_id=-1,
            topics=[
                {
                    "name": TOPIC,
                    "partitions": [
                        {"partition_index": p, "timestamp": -2, "current_leader_epoch": -1}
                        for p in (0, 11, 12, 99)
                    ],
                },
                {
                    "name": "absent",
                    "partitions": [
                        {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
                    ],
                },
            ],
        )


def metadata(side: Side, _: str) -> None:
    names = [TOPIC, "absent-topic", "bad name", "", "x" * 250, "..", TOPIC]
    for version in range(4, 14):  # below 4 a client cannot say that nothing is to be created
        for asked in (names, [], None):
            topics = None if asked is None else [{"name": name} for name in asked]
            answer = side.client.call(
                "metadata", version, topics=topics, allow_auto_topic_creation=False
            )
            _blank(answer)
            answer["topics"] = [t for t in answer["topics"] if t["name"] in names]
            side.keep(f"metadata v{version} {(asked and 'names') or asked}", answer)
    for version in (10, 12, 13):
        strange = [{"topic_id": uuid.UUID(int=5), "name": None}]
        try:
            side.keep(
                f"metadata v{version} by id",
                _blank(side.client.call("metadata", version, topics=strange)),
            )
        except ConnectionError:
            side.client = RawClient(side.port, client_id="differential", timeout_s=20)
            side.keep(f"metadata v{version} by id", {"closed": True})


def _blank(answer: dict[str, Any]) -> dict[str, Any]:
    """Addresses, cluster and topic ids are each side's own."""
    answer["brokers"] = len(answer["brokers"])
    answer["cluster_id"] = None
    for topic in answer["topics"]:
        topic["topic_id"] = None if topic.get("error_code") == 0 else topic.get("topic_id")
    return answer


def clusters(side: Side, _: str) -> None:
    for version in range(3):
        for kind in (1, 2, 3):
            answer = side.client.call("describe_cluster", version, endpoint_type=kind)
            answer["brokers"] = len(answer["brokers"])
            answer["cluster_id"] = answer["cluster_id"] and "<id>"
            if kind == 1 or version >= 1:
                side.keep(f"describe_cluster v{version} {kind}", answer)


def topics(side: Side, group: str) -> None:
    for version in range(2, 8):
        for more in (
            {},
            {"validate_only": True},
            {"num_partitions": -1},
            {"num_partitions": 0},
            {"replication_factor": 3},
            {"replication_factor": 0},
            {"name": "bad name"},
            {"name": ""},
            {"name": TOPIC},
            {"configs": [{"name": "no.such.config", "value": "1"}]},
            {"configs": [{"name": "retention.ms", "value": "100000"}]},
            {"assignments": [{"partition_index": 0, "broker_ids": [1]}]},
        ):
            new = {
                "name": f"{group}-{version}",
                "num_partitions": 2,
                "replication_factor": 1,
                **{k: v for k, v in more.items() if k != "validate_only"},
            }
            answer = side.client.call(
                "create_topics",
                version,
                topics=[new],
                timeout=20_000,
                validate_only="validate_only" in more,
            )
            for topic in answer["topics"]:
                topic["topic_id"] = topic["configs"] = None
            side.keep(f"create_topics v{version} {more}", answer)
            if "name" not in more:
                new["name"] = f"{group}-{version}-fresh-{len(side.answers)}"
                fresh = side.client.call("create_topics", version, topics=[new], timeout=20_000)
                for topic in fresh["topics"]:
                    topic["topic_id"] = topic["configs"] = None
                side.keep(f"create_topics v{version} {more} fresh", fresh)
    for version in range(4):
        for name, count in (
            (f"{group}-3", 4),
            (f"{group}-3", 4),
            (f"{group}-3", 1),
            ("absent", 4),
            (f"{group}-3", -1),
        ):
            side(
                "create_partitions",
                version,
                timeout=20_000,
                validate_only=False,
                topics=[{"name": name, "count": count, "assignments": None}],
            )
    same = {"name": f"{group}-twice", "num_partitions": 1, "replication_factor": 1}
    side("create_topics", 4, topics=[same, same], timeout=20_000)
    side(
        "offset_commit",
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=_offsets(f"{group}-2"),
    )
    for version in range(1, 7):
        name = f"{group}-{version + 1}"
        if version < 6:
            answer = side.client.call(
                "delete_topics",
                version,
                topic_names=[name, "absent"],
                timeout_ms=20_000,
                timeout=20_000,
            )
        else:
            answer = side.client.call(
                "delete_topics",
                6,
                timeout_ms=20_000,
                timeout=20_000,
                topics=[
                    {"name": name, "topic_id": None},
                    {"name": "absent", "topic_id": None},
                    {"name": None, "topic_id": uuid.UUID(int=3)},
                ],
            )
        for entry in answer["responses"]:
            if entry["error_code"] == 0:
                entry["topic_id"] = None
        side.keep(f"delete_topics v{version}", answer)


def refused(side: Side, group: str) -> None:
    """What closes the connection, and what does not."""
    good = encode_request(
        "heartbeat", 4, {"group_id": group, "generation_id": 1, "member_id": "m"}, 1, "differential"
    )
    flexible = encode_request("list_groups", 4, {"states_filter": []}, 1, "differential")
    empty_list = encode_request("list_groups", 4, {"states_filter": ["Dead"]}, 1, "differential")
    bodies = {
        "as it is": good,
        "trailing bytes": good[4:] + b"more",
        "ends early": good[4:-3],
        "unknown key": b"\x7f\x00" + good[6:],
        "unknown version": good[4:6] + b"\x00\x63" + good[8:],
        "negative version": good[4:6] + b"\xff\xff" + good[8:],
        "api versions 9": b"\x00\x12\x00\x09" + good[8:],
        "not utf-8": good[4:].replace(group.encode()[:3], b"\xff\xfe\xfd"),
        "unknown tag": empty_list[4:-1] + b"\x01\x63\x02hi",
        "count beyond the end": flexible[4:-2] + b"\x7f\x00",
        "null array": flexible[4:-2] + b"\x00\x00",
        "empty": b"",
        "one byte": b"\x00",
    }
    bodies["as it is"] = good[4:]
    for what, body in bodies.items():
        with socket.create_connection(("127.0.0.1", side.port), timeout=20) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            head = connection.recv(4, socket.MSG_WAITALL)
            if len(head) < 4:
                side.keep(what, {"closed": True})
                continue
            (length,) = struct.unpack(">i", head)
            side.keep(what, {"answer": connection.recv(length, socket.MSG_WAITALL)[:40].hex()})


def api_versions(side: Side, _: str) -> None:
    served = set(API_KEYS.values())
    for version in range(5):
        answer = side.client.call(
            "api_versions", version, client_software_name="raw", client_software_version="1.0"
        )
        keys = [k for k in answer["api_keys"] if k["api_key"] in served]
        side.keep(f"api_versions v{version}", {"error_code": answer["error_code"], "keys": keys})
    for name, number in (("", "1"), ("raw", ""), ("-raw", "1"), ("r w", "1"), ("raw", "1.")):
        side("api_versions", 3, client_software_name=name, client_software_version=number)


CASES: list[Callable[[Side, str], None]] = [
    join_versions,
    join_errors,
    pending_ids,
    sync_errors,
    heartbeats,
    leaves,
    static_members,
    rebalances,
    commits,
    fetches,
    coordinators,
    describes,
    offsets_of_partitions,
    metadata,
    clusters,
    topics,
    refused,
    api_versions,
]


def main() -> None:
    ports = [int(port) for port in sys.argv[1:]]
    run = uuid.uuid4().hex[:6]
    differences = requests = 0
    for case in CASES:
        sides = [Side(port) for port in ports]
        failures = []
        for side in sides:
            try:
                case(side, f"diff-{run}-{case.__name__}")
            except Exception as error:  # noqa: BLE001 - the comparison goes on with the next case
                failures.append(repr(error))
        for theirs, ours in zip(sides[0].answers, sides[1].answers, strict=False):
            requests += 1
            if theirs[1] != ours[1]:
                differences += 1
                say(
                    f"--- {case.__name__}: {theirs[0]}\n  Kafka: {json.dumps(theirs[1])}\n"
                    f"  ours:  {json.dumps(ours[1])}"
                )
        if failures or len(sides[0].answers) != len(sides[1].answers):
            say(f"--- {case.__name__}: ended early: {failures}")
        for side in sides:
            side.close()
    say(f"{requests} answers compared, {differences} differ")
    raise SystemExit(1 if differences else 0)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
