"""Odd bodies: bytes left over, unknown tags, nulls, counts beyond the end (spec section 1).

Every body is made from a good one of its API and version, byte by byte, so that nothing depends on
where a field lies: cut short, made longer, and with one byte at a time replaced by one that says
"null", "none" or "very many" where it is a length. None names a group that is not the case's own.
"""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Iterator
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader

from tests.conformance.kafka.asked import ASKED
from tests.conformance.kafka.case import Case, edge, versions_of
from tests.conformance.kafka.pair import BY_NAME
from tests.conformance.kafka.settings import LONG_MS, TOPIC
from tests.helpers.raw_client import API_KEYS, encode_request, to_plain

GROUP_APIS = (
    "offset_commit",
    "offset_fetch",
    "find_coordinator",
    "join_group",
    "heartbeat",
    "leave_group",
    "sync_group",
    "describe_groups",
    "list_groups",
    "delete_groups",
    "offset_delete",
)
WAIT_S = 5
CORRELATION_ID = 0x01020304


def good_body(api: str, version: int, group: str) -> bytes:
    """A frame without its length; of an unknown member where the API has one: nothing parks."""
    member = {"member_id": "m", "group_instance_id": None, "reason": "r"}
    values: dict[str, Any] = {
        "group_id": group,
        "member_id": "m",
        "group_instance_id": None,
        "generation_id": 7,
        "generation_id_or_member_epoch": 7,
        "session_timeout": LONG_MS,
        "rebalance_timeout": LONG_MS,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "protocols": [{"name": "range", "metadata": b"ab"}],
        "assignments": [{"member_id": "m", "assignment": b"ab"}],
        "members": [member],
        "key": group,
        "key_type": 0,
        "coordinator_keys": [group],
        "groups_names": [group],
        "states_filter": ["Empty"],
        "types_filter": ["classic"],
        "retention_time_ms": -1,
        "topics": [{"name": TOPIC, "topic_id": None, "partitions": [{"partition_index": 0}]}],
    }
    part = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    if api == "offset_commit":
        values["topics"] = [{"name": TOPIC, "topic_id": None, "partitions": [part]}]
    if api == "offset_fetch":
        topics = [{"name": TOPIC, "topic_id": None, "partition_indexes": [0]}]
        values["topics"] = topics
        values["groups"] = [
            {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}
        ]
    if api == "describe_groups":
        values["groups"] = [group]
    return encode_request(api, version, values, CORRELATION_ID, "odd")[4:]


def odd_bodies(api: str, version: int, group: str) -> Iterator[tuple[str, bytes]]:
    """The good one and what can be wrong with it."""
    good = good_body(api, version, group)
    flexible = version >= BY_NAME[api].first_flexible
    head = 8 + 2 + len("odd") + flexible
    yield "as it is", good
    yield "a byte left over", good + b"\0"
    yield "many left over", good + b"more than that"
    if flexible:
        tag = b"\x01\x63\x02hi"
        yield "an unknown tag", good[:-1] + tag
        yield "an unknown tag in the header", good[: head - 1] + tag + good[head:]
        yield "a tag beyond the end", good[:-1] + b"\x01\x63\x7fhi"
    for end in range(8, len(good)):
        yield f"cut to {end} bytes", good[:end]
    name = good.find(group.encode())
    for at in range(head, len(good)):
        if name <= at < name + len(group):  # another group's name is as good
            continue
        for byte in (0x00, 0x7F, 0xFF):
            no_name = at == name - 1 and byte == 0 and not flexible  # all cases share that group
            if good[at] != byte and not no_name:
                yield f"byte {at} is {byte:#x}", good[:at] + bytes([byte]) + good[at + 1 :]
    yield "not UTF-8", good.replace(group.encode()[:2], b"\xff\xfe")


def answer_to(port: int, api: str, version: int, body: bytes) -> dict[str, Any]:
    """What comes back: the answer, or that the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        try:
            head = connection.recv(4, socket.MSG_WAITALL)
            if len(head) < 4:
                return {"connection": "closed"}
            data = connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
        except TimeoutError:
            return {"connection": "waits"}
        except ConnectionError:
            return {"connection": "closed"}
    response = load_response_schema(API_KEYS[api], version)
    _, size = entity_reader(response.__header_schema__)(data, 0)
    plain = to_plain(entity_reader(response)(data, size)[0])
    assert isinstance(plain, dict)
    assert io.BytesIO(data).read(4) == struct.pack(">i", CORRELATION_ID)
    return plain


def _put(case: Case, api: str, version: int, step: int) -> None:
    if api == "list_groups":
        case.reset(case.person("a"))
        case.pair.ask_until_equal("list_groups", 5)
    for n, (what, body) in enumerate(odd_bodies(api, version, case.group)):
        if what.startswith(("cut", "byte")) and n % step:
            continue
        answers = [answer_to(port, api, version, body) for port in case.pair.ports]
        told = f"{api} v{version}, {what}: {body.hex()}"
        case.pair.steps.append(told)
        case.pair.comparison.compare(told, api, version, *answers)


def _register(api: str) -> None:
    def script(case: Case) -> None:
        versions = versions_of(api)
        if case.level < len(versions):
            _put(case, api, versions[case.level], 1 if ASKED.all_versions else 5)

    script.__name__ = f"odd_bodies_of_{api}"
    edge()(script)


for _api in GROUP_APIS:
    _register(_api)


@edge(109)
def frames_that_are_no_request(case: Case) -> None:
    good = good_body("heartbeat", 4, case.group)
    for what, body in {
        "unknown key": b"\x7f\x00" + good[2:],
        "negative key": b"\xff\xff" + good[2:],
        "unknown version": good[:2] + b"\x00\x63" + good[4:],
        "negative version": good[:2] + b"\xff\xff" + good[4:],
        "empty": b"",
        "one byte": b"\x00",
        "no client id": good[:8] + b"\xff\xff" + good[8 + 2 + len("odd") :],
    }.items():
        answers = [answer_to(port, "heartbeat", 4, body) for port in case.pair.ports]
        case.pair.comparison.compare(what, "heartbeat", 4, *answers)
    too_new = b"\x00\x12\x00\x09" + good[4:]
    answers = [answer_to(port, "api_versions", 0, too_new) for port in case.pair.ports]
    codes = [{"error_code": a["error_code"], "keys": len(a["api_keys"])} for a in answers]
    case.pair.comparison.compare("ApiVersions v9", "api_versions", 9, *codes)


@edge()
def versions_that_kafka_dropped(case: Case) -> None:
    """OffsetCommit 0-1 and OffsetFetch 0: old clients send them without asking."""
    group = case.group.encode()
    start = struct.pack(">h", len(group)) + group
    topics = struct.pack(">ih", 1, len(TOPIC)) + TOPIC.encode()
    bodies = {
        ("offset_fetch", 0): start + topics + struct.pack(">ii", 1, 0),
        ("offset_commit", 0): start + topics + struct.pack(">iiqh", 1, 0, 5, 0),
        ("offset_commit", 1): start
        + struct.pack(">ih", -1, 0)
        + topics
        + struct.pack(">iiqqh", 1, 0, 5, -1, 0),
    }
    for (api, version), body in bodies.items():
        head = struct.pack(">hhih", API_KEYS[api], version, CORRELATION_ID, 3) + b"odd"
        told = []
        for port in case.pair.ports:
            with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
                connection.sendall(struct.pack(">i", len(head + body)) + head + body)
                answered = len(connection.recv(4, socket.MSG_WAITALL)) == 4
                told.append({"connection": "answered" if answered else "closed"})
        case.pair.comparison.compare(f"{api} v{version}", api, version, *told)


@edge()
def too_much_for_one_request(case: Case) -> None:
    """9 MiB of metadata, and more groups than a request may name."""
    large = [("range", bytes(9 * 2**20))]
    _, api, version, values = case.joining(case.person("a"), member_id="m", protocols=large)
    case.pair.ask(api, version, **values)
    many = [f"{case.group}-{n}" for n in range(20_001)]
    case.pair.ask("describe_groups", case.v("describe_groups"), groups=many)


@edge()
def too_large_for_kafkas_log(case: Case) -> None:
    """An assignment beyond ``max.message.bytes``, which we have none of."""
    a = case.person("a")
    case.enter(a)
    case.sync(a, {a: bytes(1_100_000)})
