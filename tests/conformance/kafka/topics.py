"""Topics, the cluster, and which versions are served: docs/spec/wire.md, docs/spec/cluster.md."""

from __future__ import annotations

import uuid
from typing import Any

from tests.conformance.kafka.case import UNKNOWN_TOPIC, Case, edge
from tests.conformance.kafka.pair import SIDES
from tests.conformance.kafka.settings import TOPIC
from tests.helpers.wire.raw_client import API_KEYS

BATCH = bytes.fromhex(
    "0000000000000000 00000039 ffffffff 02 156266bb 0000 00000000 0000000000000001"
    "0000000000000001 ffffffffffffffff ffff ffffffff 00000001 0e000000010278 00"
)
"""One record (``DefaultRecordBatch`` of Kafka, magic 2)."""
FETCHED, PRODUCED_TO = 9, 10
"""Partitions that no other case has a strange offset in, or looks into."""


def _ends(case: Case, *topics: tuple[str, tuple[tuple[int, int, int], ...]], **how: Any) -> None:
    """Ask for the ends of (partition, timestamp, leader epoch) of topics."""
    asked = [
        {
            "name": name,
            "partitions": [
                {"partition_index": p, "timestamp": time, "current_leader_epoch": epoch}
                for p, time, epoch in partitions
            ],
        }
        for name, partitions in topics
    ]
    how = {"replica_id": -1, "isolation_level": 0, **how}
    case.pair.ask("list_offsets", case.v("list_offsets"), topics=asked, **how)


@edge()
def ends_of_partitions(case: Case) -> None:
    case.reset(case.person("a"))  # LATEST is beyond that offset
    for time in (-2, -1, -3, -4, -5, -6, -7, 0, 1):
        partitions = tuple((p, time, -1) for p in (0, 11, 12, 99))
        _ends(case, (TOPIC, partitions), ("absent", ((0, -1, -1),)))


@edge()
def ends_that_are_asked_for_oddly(case: Case) -> None:
    """Twice, with other epochs, at other isolation levels, and of no partition."""
    known = case.group
    case.make_topic(known)
    a, b = (0, -2, -1), (1, -1, -1)
    for topics in (
        ((known, ()), ("absent", ())),
        ((known, (a, b, a)), ("absent", (a, a))),
        ((known, (a,)), ("absent", (a,)), (known, (b,)), ("absent", (b,))),
        ((known, ((1, -99, -1), (1, -99, -1))),),
        *(((known, ((1, time, epoch),)),) for time in (-2, -99) for epoch in (-2, 0, 1)),
    ):
        for level in (0, 1, 2, -1):
            _ends(case, *topics, isolation_level=level)
    for replica in (-2, 0, 1, 5):
        _ends(case, (known, (a, b)), replica_id=replica)


def _produce(
    case: Case, *topics: tuple[str, Any, tuple[int, ...]], acks: int = -1, records: Any = BATCH
) -> None:
    data = [
        {
            "name": name,
            "topic_id": topic_id,
            "partition_data": [{"index": index, "records": records} for index in indexes],
        }
        for name, topic_id, indexes in topics
    ]
    how = {"transactional_id": None, "timeout": 5_000}
    case.pair.ask("produce", case.v("produce", 3), topic_data=data, acks=acks, **how)


@edge()
def records_are_refused(case: Case) -> None:
    known, absent = (TOPIC, case.pair.topic_id), ("absent", UNKNOWN_TOPIC)
    _produce(case, (*known, (PRODUCED_TO, 99)))
    _produce(case, (*known, (98, 99, 98)), (*absent, (0,)), (*known, ()), (*absent, (1,)))
    _produce(case, (*known, (PRODUCED_TO,)), records=b"")
    _produce(case)
    _produce(case, (*known, (99,)), acks=0)


@edge()
def nothing_is_produced_without_acknowledgement(case: Case) -> None:
    """Nothing comes back, and the connection stays: the next request is answered."""
    version = case.v("produce", 3)
    a = case.person("a")
    how = {"transactional_id": None, "timeout": 5_000, "acks": 0}
    for side in SIDES:
        a.client(side).send("produce", version, topic_data=[], **how)
    case.heartbeat(a, member_id="m", generation=1)


def _fetch(
    case: Case, *topics: tuple[str, Any, tuple[tuple[int, int, int], ...]], **how: Any
) -> None:
    """Fetch (partition, offset, leader epoch) of topics, by name and by id."""
    asked = [
        {
            "topic": name,
            "topic_id": topic_id,
            "partitions": [
                {
                    "partition": p,
                    "current_leader_epoch": epoch,
                    "fetch_offset": offset,
                    "last_fetched_epoch": -1,
                    "log_start_offset": -1,
                    "partition_max_bytes": 1_000,
                }
                for p, offset, epoch in partitions
            ],
        }
        for name, topic_id, partitions in topics
    ]
    replica = how.pop("replica_id", -1)
    values = {
        "replica_id": replica,
        "replica_state": {"replica_id": replica, "replica_epoch": -1},
        "max_wait": 10,
        "min_bytes": 1,
        "max_bytes": 1_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": [],
        "rack_id": "",
        **how,
    }
    case.pair.ask("fetch", case.v("fetch"), topics=asked, **values)


@edge()
def nothing_is_fetched(case: Case) -> None:
    case.reset(case.person("a"), topics=[case.offsets(partitions=(FETCHED,))])
    for offset in (0, 2**62 - 1, -1):
        partitions = tuple((p, offset, -1) for p in (FETCHED, 99))
        _fetch(case, (TOPIC, case.pair.topic_id, partitions))


@edge()
def fetches_that_are_asked_for_oddly(case: Case) -> None:
    """Twice, with other epochs, at other isolation levels, as a replica, and of no partition."""
    known = (case.group, case.make_topic(case.group, 4))
    absent = ("absent", UNKNOWN_TOPIC)
    a, b, missing = (0, 0, -1), (1, 0, -1), (99, 0, -1)
    epochs = tuple((p, 0, p - 2) for p in range(4))
    for topics in (
        (),
        ((*known, ()), (*absent, ())),
        ((*known, (a, a)),),
        ((*known, (a, (0, 2**62, -1))),),
        ((*known, (a,)), (*known, (b,))),
        ((*absent, (a,)), (*known, (a,)), (*known, (missing, b)), (*absent, (b,))),
        ((*known, (missing, a)), (*absent, (a,)), (*known, ((98, 0, -1),))),
        ((*absent, (a,)),),
        ((*known, epochs),),
        *((("", None, odd), (*absent, (a,))) for odd in ((a,), (a, b))),
        ((*absent, (a,)), ("", None, (a,))),
    ):
        for how in (
            {},
            *({"isolation_level": level} for level in (1, 2, -1)),
            *({"replica_id": replica} for replica in (-2, -3, 0, 1, 5)),
            {"replica_id": -2, "isolation_level": 1},
            {"replica_id": 1, "isolation_level": 2},
            {"session_id": 5, "isolation_level": 2},
        ):
            _fetch(case, *topics, **how)


@edge(small=True)
def a_topic_that_metadata_creates(case: Case) -> None:
    version = case.v("metadata", 4)
    asked = [{"name": f"{case.group}-{n}", "topic_id": None} for n in "ab"]
    case.pair.ask("metadata", version, topics=asked[:1], allow_auto_topic_creation=False)
    case.pair.ask("metadata", version, topics=asked, allow_auto_topic_creation=True)
    case.wait(500)
    case.pair.ask("metadata", version, topics=asked, allow_auto_topic_creation=True)


@edge()
def metadata(case: Case) -> None:
    names = [TOPIC, "absent-topic", "bad name", "", "x" * 250, "..", TOPIC]
    version = case.v("metadata", 4)  # below version 4 a client cannot forbid the creation of topics

    def mine(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "topics": [t for t in answer["topics"] if t["name"] in names]}

    for asked in (names, [], None):
        topics = None if asked is None else [{"name": n, "topic_id": None} for n in asked]
        case.pair.ask("metadata", version, mine, topics=topics, allow_auto_topic_creation=False)
    for version in (10, 12, 13):
        strange = {"topic_id": uuid.UUID(int=5), "name": None}
        known = {"topic_id": case.pair.topic_id, "name": None}
        nothing = {"topic_id": None, "name": None}
        named = {"topic_id": None, "name": TOPIC}
        for topics in (
            [strange],
            [known],
            [nothing],
            [named, nothing, nothing],
            [nothing, known, named],
        ):
            case.pair.ask(
                "metadata", version, topics=topics, include_topic_authorized_operations=True
            )


@edge()
def the_cluster(case: Case) -> None:
    version = case.v("describe_cluster")
    for kind in (1, 2, 3):
        if kind == 1 or version >= 1:
            case.pair.ask("describe_cluster", version, endpoint_type=kind)
            case.pair.ask(
                "describe_cluster",
                version,
                endpoint_type=kind,
                include_cluster_authorized_operations=True,
            )


@edge()
def topics_are_created(case: Case) -> None:
    version = case.v("create_topics")
    for n, more in enumerate(
        (
            {},
            {},
            {"configs": [{"name": "no.such.config", "value": "1"}]},
            {"num_partitions": -1},
            {"num_partitions": 0},
            {"replication_factor": 3},
            {"replication_factor": 0},
            {"name": "bad name"},
            {"name": ""},
            {"name": TOPIC},
            {"configs": [{"name": "retention.ms", "value": "100000"}]},
            {"assignments": [{"partition_index": 0, "broker_ids": [1]}]},
        )
    ):
        for name in (case.group, f"{case.group}-fresh-{n}"):
            new = {"name": name, "num_partitions": 2, "replication_factor": 1, **more}
            for validate_only in (True, False):
                case.pair.ask(
                    "create_topics",
                    version,
                    topics=[new],
                    timeout=20_000,
                    validate_only=validate_only,
                )
    same = {"name": f"{case.group}-twice", "num_partitions": 1, "replication_factor": 1}
    case.pair.ask("create_topics", version, topics=[same, same], timeout=20_000)


@edge()
def topics_grow_and_go(case: Case) -> None:
    for n in range(3):
        new = {"name": f"{case.group}-{n}", "num_partitions": 2, "replication_factor": 1}
        case.pair.ask("create_topics", 4, topics=[new], timeout=20_000)
    for name, count in (
        (f"{case.group}-0", 4),
        (f"{case.group}-0", 4),
        (f"{case.group}-0", 1),
        ("absent", 4),
        (f"{case.group}-0", -1),
    ):
        case.pair.ask(
            "create_partitions",
            case.v("create_partitions"),
            timeout=20_000,
            validate_only=False,
            topics=[{"name": name, "count": count, "assignments": None}],
        )
    case.wait(500)
    names = [f"{case.group}-1", "absent"]
    by_name = [{"name": name, "topic_id": None} for name in names]
    case.pair.ask(
        "delete_topics",
        case.v("delete_topics"),
        topic_names=names,
        topics=[*by_name, {"name": None, "topic_id": uuid.UUID(int=3)}],
        timeout=20_000,
    )


@edge()
def a_topic_to_delete_is_named_twice(case: Case) -> None:
    name = f"{case.group}-topic"
    topic_id = case.make_topic(name)
    both, by_name, by_id = (name, topic_id), (name, None), (None, topic_id)
    absent, nothing, empty = ("absent", None), (None, None), ("", None)
    strange = (None, UNKNOWN_TOPIC)
    for named in (
        (absent, absent, strange, strange),
        (nothing, nothing, empty),
        (both, both, ("", UNKNOWN_TOPIC)),
        (by_id, by_name),
        (by_name, by_name, by_name),
        (by_id, by_id, by_name),
        (by_id, by_id, by_name, by_name),
        (by_name, by_name, by_id, absent),
        (by_name,),
    ):
        topics = [{"name": name, "topic_id": topic_id} for name, topic_id in named]
        case.pair.ask("delete_topics", 6, topics=topics, timeout=20_000)


@edge(109)
def served_versions(case: Case) -> None:
    served = set(API_KEYS.values())

    def mine(answer: dict[str, Any]) -> dict[str, Any]:
        keys = [k for k in answer["api_keys"] if k["api_key"] in served]
        return {"error_code": answer["error_code"], "api_keys": keys}

    version = case.v("api_versions")
    software = {"client_software_name": "raw", "client_software_version": "1.0"}
    case.pair.ask("api_versions", version, mine, **software)
    case.pair.ask("api_versions", version, **software)
    for name, number in (("", "1"), ("raw", ""), ("-raw", "1"), ("r w", "1"), ("raw", "1.")):
        if version >= 3:
            case.pair.ask(
                "api_versions", version, client_software_name=name, client_software_version=number
            )
