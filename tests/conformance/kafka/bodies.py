"""Odd bodies: bytes left over, unknown tags, nulls, counts beyond the end
(docs/spec/wire.md#frames).

Every body is made from a good one of its API and version. Byte by byte, so that nothing depends on
where a field lies: cut short, made longer, and with one byte at a time replaced by one that says
"null", "none" or "very many" where it is a length. And value by value (``requests.odd``). None
names a group or a topic that is not the case's own, but for the one that all share.
"""

from __future__ import annotations

import io
import re
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader

from tests.conformance.kafka import requests
from tests.conformance.kafka.asked import ASKED
from tests.conformance.kafka.case import Case, edge, versions_of
from tests.conformance.kafka.pair import BY_NAME, SIDES, resolved
from tests.conformance.kafka.settings import TOPIC
from tests.helpers.wire.raw_client import API_KEYS, encode_request, to_plain

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
CONSUMER_GROUP_APIS = ("consumer_group_heartbeat", "consumer_group_describe")
"""They have cases of their own."""
TOPIC_APIS = tuple(sorted(set(API_KEYS) - {*GROUP_APIS, *CONSUMER_GROUP_APIS}))
"""All others that are served."""

HAVE_CASES = re.compile(
    r"timeout(_ms)? is [1-9]"  # chance decides which members are in time
    r"|key_type is 1\b"  # the_coordinator_of_transactions
    r"|protocols\[0\]( comes|\.metadata.* beside)"  # a_protocol_named_twice: Kafka may never answer
    r"|session_id is -?2147"  # Kafka searches beyond the end of an array, and fails
    r"|.*(num_partitions|count) is 2147483647"  # more_partitions_than_kafka_counts
)
"""Odd values that have cases of their own, or none that can tell."""

WAIT_S = 20
"""Nothing parks; a controller on a busy machine answers late."""
CORRELATION_ID = 0x01020304


def encoded(api: str, version: int, values: dict[str, Any]) -> bytes:
    """A frame without its length."""
    return encode_request(api, version, values, CORRELATION_ID, "odd")[4:]


def odd_bytes(
    api: str, version: int, good: bytes, kept: Sequence[bytes]
) -> Iterator[tuple[str, bytes]]:
    """The good one and what can be wrong with it; the bytes of names and ids that are kept stay."""
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
    names = [at for name in kept for at in _places(good, name)]
    # a byte of another name would be as good
    own = {at + n for at, length in names for n in range(length)}
    first = {at for at, _ in names}
    for at in range(head, len(good)):
        if at in own:
            continue
        for byte in (0x00, 0x7F, 0xFF):
            # all cases share the group without a name
            no_name = at + 1 in first and byte == 0 and not flexible
            if good[at] != byte and not no_name:
                yield f"byte {at} is {byte:#x}", good[:at] + bytes([byte]) + good[at + 1 :]
    if kept:
        yield "not UTF-8", good.replace(kept[0][:2], b"\xff\xfe")


def _places(body: bytes, name: bytes) -> Iterator[tuple[int, int]]:
    at = body.find(name)
    while name and at >= 0:
        yield at, len(name)
        at = body.find(name, at + 1)


def odd_values(
    api: str, version: int, values: dict[str, Any], kept: str
) -> Iterator[tuple[str, tuple[bytes, bytes]]]:
    """Both sides' bodies with one value changed, each once; what cannot be said is left out."""
    for what, changed in odd_requests(api, version, values, kept):
        yield what, of_both(api, version, changed)


def odd_requests(
    api: str, version: int, values: dict[str, Any], kept: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same as values."""
    seen = {of_both(api, version, values)}
    for what, changed in requests.odd(values, kept):
        if HAVE_CASES.match(what):
            continue
        try:
            bodies = of_both(api, version, changed)
        except (TypeError, ValueError, AttributeError, OverflowError, struct.error):
            continue
        if bodies not in seen:
            seen.add(bodies)
            yield what, changed


def of_both(api: str, version: int, values: dict[str, Any]) -> tuple[bytes, bytes]:
    """Kafka's body and ours: each names the ids that its side gave."""
    kafka, ours = (encoded(api, version, resolved(values, side)) for side in SIDES)
    return kafka, ours


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
    values = requests.of_group(api, case.group)
    kept = (case.group.encode(),)
    good = encoded(api, version, values)
    for n, (what, body) in enumerate(odd_bytes(api, version, good, kept)):
        if not what.startswith(("cut", "byte")) or n % step == 0:
            compare(case, api, version, what, (body, body))
    if api != "join_group":  # a new member would delay the rebalance: see ``odd_values``
        for what, bodies in odd_values(api, version, values, case.group):
            compare(case, api, version, what, bodies)


def _put_topic(case: Case, api: str, version: int, step: int) -> None:
    topic_id = case.make_topic(case.group)
    values = requests.of_topic(api, case.group, topic_id)
    good = of_both(api, version, values)
    odd = [
        list(
            odd_bytes(api, version, good[side], (case.group.encode(), topic_id.of_side(side).bytes))
        )
        for side in SIDES
    ]
    for n, ((what, theirs), (_, mine)) in enumerate(zip(*odd, strict=True)):
        if not what.startswith(("cut", "byte")) or n % step == 0:
            compare(case, api, version, what, (theirs, mine))
    for what, bodies in odd_values(api, version, values, case.group):
        compare(case, api, version, what, bodies)


def compare(
    case: Case, api: str, version: int, what: str, bodies: tuple[bytes, bytes]
) -> list[dict[str, Any]]:
    """Send a body to each side, compare the answers and return both."""
    answers = [
        answer_to(port, api, version, body)
        for port, body in zip(case.pair.ports, bodies, strict=True)
    ]
    told = f"{api} v{version}, {what}: {bodies[0].hex()}"
    case.pair.steps.append(told)
    case.pair.comparison.compare(told, api, version, *(_own(case, api, a) for a in answers))
    return answers


def _own(case: Case, api: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer without other cases' topics, and without what ``served_versions`` compares."""
    if api == "api_versions" and "api_keys" in answer:
        return {"error_code": answer["error_code"]}
    if api == "metadata" and "topics" in answer:
        topics = [t for t in answer["topics"] if not _is_others(case, t["name"])]
        return {**answer, "topics": topics}
    return answer


def _is_others(case: Case, name: str | None) -> bool:
    if name is None:
        return False
    return not name.startswith(case.group) and (
        name == TOPIC or name.startswith("__") or "-" in name
    )


def _register(api: str, put: Callable[[Case, str, int, int], None]) -> None:
    def script(case: Case) -> None:
        versions = [v for v in versions_of(api) if api != "produce" or v >= 3]
        if case.level < len(versions):
            put(case, api, versions[case.level], 1 if ASKED.all_versions else 5)

    script.__name__ = f"odd_bodies_of_{api}"
    edge()(script)


for _api in GROUP_APIS:
    _register(_api, _put)
for _api in TOPIC_APIS:
    _register(_api, _put_topic)


@edge(109)
def frames_that_are_no_request(case: Case) -> None:
    good = encoded("heartbeat", 4, requests.of_group("heartbeat", case.group))
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
    for version in (9, -1):
        asked = b"\x00\x12" + version.to_bytes(2, signed=True) + good[4:]
        answers = [answer_to(port, "api_versions", 0, asked) for port in case.pair.ports]
        codes = [{"error_code": a["error_code"], "keys": len(a["api_keys"])} for a in answers]
        case.pair.comparison.compare(f"ApiVersions v{version}", "api_versions", 9, *codes)


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
