"""What is refused when topics are created, grown or deleted, and names that are Kafka's own."""

from __future__ import annotations

import uuid
from typing import Any

from tests.conformance.kafka.case import Case, edge
from tests.conformance.kafka.configs import APPEND, DELETE, SET, SUBTRACT, TOPIC_KIND, change
from tests.conformance.kafka.settings import TOPIC
from tests.conformance.kafka.topics import BATCH
from tests.helpers.wire.topic_config_values import KAFKAS_ALONE, OURS_ALONE, REFUSED, TAKEN

INTERNAL = "__consumer_offsets"


def new(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    """A topic to create."""
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **more}


def configs(*pairs: tuple[str, str | None]) -> list[dict[str, Any]]:
    """Configs of a topic to create."""
    return [{"name": name, "value": value} for name, value in pairs]


def create(case: Case, *topics: dict[str, Any], validate_only: bool = True, **more: Any) -> None:
    """CreateTopics, but for the configs that only Kafka tells (``topics_are_created``)."""

    def without_configs(answer: dict[str, Any]) -> dict[str, Any]:
        for topic in answer["topics"]:
            topic.pop("configs", None)
        return answer

    version = case.v("create_topics")
    topics_and_more = {"topics": topics, "validate_only": validate_only, **more}
    case.pair.ask("create_topics", version, without_configs, **topics_and_more)


def grow(case: Case, *topics: tuple[str, int], **more: Any) -> None:
    """CreatePartitions."""
    asked = [{"name": name, "count": count, "assignments": None} for name, count in topics]
    version = case.v("create_partitions")
    case.pair.ask("create_partitions", version, topics=asked, validate_only=True, **more)


def delete(case: Case, *names: str | None, **more: Any) -> None:
    """DeleteTopics, by name."""
    topics = [{"name": name, "topic_id": None} for name in names]
    asked = {"topic_names": names, "topics": topics, **more}
    case.pair.ask("delete_topics", case.v("delete_topics"), **asked)


@edge()
def changes_of_topics_that_are_given_no_time(case: Case) -> None:
    name = case.group
    for timeout in (0, -1):
        create(case, new(name), new(TOPIC), new("bad name", replicas=3), timeout=timeout)
        create(case, new(name), new(name), new(f"{name}-other"), timeout=timeout)
        create(case, new(name), new(name), timeout=timeout)
        create(case, new("__cluster_metadata"), timeout=timeout)
        create(case, new(name, 10_001), timeout=timeout)
        create(case, timeout=timeout)
        grow(case, (TOPIC, 20), ("absent", 5), (TOPIC, 20), timeout=timeout)
        grow(case, (TOPIC, 20), (TOPIC, 20), timeout=timeout)
        grow(case, (TOPIC, 1), timeout=timeout)
        grow(case, timeout=timeout)
        delete(case, name, f"{name}-other", name, timeout=timeout)
        delete(case, name, name, timeout=timeout)
        delete(case, timeout=timeout)
        by_id = [{"name": None, "topic_id": uuid.UUID(int=3)}]
        case.pair.ask("delete_topics", 6, topics=by_id, timeout=timeout)


@edge()
def names_of_new_topics(case: Case) -> None:
    bad = configs(("no.such", "1"))
    for name in (
        *("__cluster_metadata", "__cluster.metadata", INTERNAL, "__consumer.offsets"),
        *("__transaction_state", "__share_group_state", "bad name", TOPIC, case.group),
    ):
        for wrong in ({}, {"partitions": 0}, {"replicas": 3}, {"configs": bad}):
            create(case, new(name, **wrong))
            create(case, new(name, **wrong), new(name, **wrong))
    create(case, new(case.group), validate_only=False)
    create(case, *[new(f"{case.group}-{n}") for n in "zaybxaz"], new("__cluster_metadata"))
    grow(case, ("absent", 3), (TOPIC, 14), (TOPIC, 15), ("bad name", 3))


@edge()
def names_that_differ_in_dots_and_underscores_alone(case: Case) -> None:
    """Metrics would mix them up. Kafka asks the topics that are there, and not each other."""
    names = [f"{case.group}{end}" for end in (".a.b", ".a_b", "_a.b", "_a_b")]
    create(case, *map(new, names))
    create(case, new("__consumer.offsets"), new("__consumer_offsets"))
    create(case, *[new(f"{'._'[n % 2]}{case.group}-{n // 2}") for n in range(4_000)])
    create(case, *map(new, names[:2]), validate_only=False)
    case.wait(700)
    for asked in (names, names[:1], names[1:2], names[2:], [*names, f"{case.group}-other"]):
        create(case, *map(new, asked))
    for gone in names[:2]:
        delete(case, gone, timeout=20_000)
        case.wait(700)
        for name in names:
            create(case, new(name))


@edge()
def what_is_wrong_with_a_new_topic_first(case: Case) -> None:
    bad = configs(("no.such", "1"))
    for partitions in (0, -1, -2, 1):
        for replicas in (-2, 0, 3, 1):
            for more in ({}, {"configs": bad}):
                create(case, new(case.group, partitions, replicas, **more))
                assignments = [{"partition_index": 0, "broker_ids": [1]}]
                create(case, new(case.group, partitions, replicas, assignments=assignments, **more))


@edge()
def values_of_topic_configs_that_one_side_takes(case: Case) -> None:
    for name, value in (*OURS_ALONE, *KAFKAS_ALONE):
        create(case, new(case.group, configs=configs((name, value))))
    lags = (("min.compaction.lag.ms", "5"), ("max.compaction.lag.ms", "4"))
    create(case, new(case.group, configs=configs(*lags)))
    _alter(
        case,
        change(TOPIC_KIND, "absent", ("cleanup.policy", SET, "x")),
        change(TOPIC_KIND, "absent", ("cleanup.policy", APPEND, "x")),
    )


@edge()
def values_of_topic_configs(case: Case) -> None:
    for name, value in (*TAKEN, *REFUSED, ("retention.ms", None), ("no.such", None)):
        create(case, new(case.group, configs=configs((name, value))))
    for pairs in (
        (("min.compaction.lag.ms", "5"), ("max.compaction.lag.ms", "5")),
        (("min.compaction.lag.ms", "9223372036854775807"),),
        (("retention.ms", "x"), ("retention.ms", "1")),
        (("retention.ms", None), ("retention.ms", "1")),
        (("remote.log.copy.disable", "true"), ("local.retention.ms", "5")),
    ):
        create(case, new(case.group, configs=configs(*pairs)))


@edge()
def many_new_partitions_at_once(case: Case) -> None:
    name, other = case.group, f"{case.group}-other"
    one_config = configs(("retention.ms", "1"))
    for topics in (
        [new(name, 9_999)],
        [new(name, 10_000)],
        [new(name, 9_998, configs=one_config)],
        [new(name, 9_999, configs=one_config)],
        [new(name, 5_000), new(other, 4_998)],
        [new(name, 5_000), new(other, 4_999)],
        [new(name, 5_000), new(other, 5_000, 3)],
        [new(name, 5_000), new(other, 5_001, 3)],
        [new(name, 10_001), new("bad name"), new(TOPIC)],
        [new(name, 10_001), new(other), new(other)],
        [new(name, 9_000), new(name, 9_000), new(other)],
        [new(TOPIC, 10_000)],
        [new(TOPIC, 10_001)],
    ):
        create(case, *topics)
    grow(case, (TOPIC, 10_012))


@edge()
def more_partitions_than_kafka_counts(case: Case) -> None:
    for count in (10_013, 2**31 - 1):
        grow(case, (TOPIC, count))
    create(case, new(case.group, 2**31 - 1), new(f"{case.group}-other"))


def _alter(case: Case, *resources: dict[str, Any]) -> None:
    version = case.v("incremental_alter_configs")
    for one in resources:
        case.pair.ask("incremental_alter_configs", version, resources=[one], validate_only=True)


@edge()
def changes_of_a_topics_configs_that_are_refused_or_change_nothing(case: Case) -> None:
    for name in (TOPIC, "absent", "bad name", "", ".", "x" * 250, "__cluster_metadata"):
        _alter(
            case,
            change(TOPIC_KIND, name, ("no.such", SET, "1")),
            change(TOPIC_KIND, name, ("", SET, "1")),
            change(TOPIC_KIND, name, ("no.such", APPEND, "1")),
            change(TOPIC_KIND, name, ("no.such", DELETE, None)),
            change(TOPIC_KIND, name, ("retention.ms", SET, "x")),
            change(TOPIC_KIND, name, ("retention.ms", SET, None)),
            change(TOPIC_KIND, name, ("retention.ms", SUBTRACT, "1")),
            change(TOPIC_KIND, name, ("retention.ms", DELETE, "x")),
            change(TOPIC_KIND, name),
        )


@edge()
def lists_that_are_appended_to(case: Case) -> None:
    """Of a topic that there is not."""
    for key, texts in (
        ("cleanup.policy", ("delete", "compact", "delete,compact")),
        ("leader.replication.throttled.replicas", ("0:1", "0:1,1:1")),
    ):
        for text in texts:
            changes = [change(TOPIC_KIND, "absent", (key, how, text)) for how in (APPEND, SUBTRACT)]
            _alter(case, *changes)


@edge()
def there_are_no_internal_topics(case: Case) -> None:
    person = case.person("a")
    case.reset(person)

    def of_all(answer: dict[str, Any]) -> dict[str, Any]:
        return {**answer, "topics": [t for t in answer["topics"] if t["name"] in (TOPIC, INTERNAL)]}

    version = case.v("metadata", 4)
    case.pair.ask("metadata", version, of_all, topics=None)
    named = [{"name": INTERNAL, "topic_id": None}]
    case.pair.ask("metadata", version, topics=named, allow_auto_topic_creation=False)
    case.reset(
        person, version=min(9, case.v("offset_commit")), topics=[case.offsets(INTERNAL, (0,))]
    )
    case.offset_delete(person, (INTERNAL, (0,)))
    case.send(
        person,
        "consumer_group_heartbeat",
        group_id=f"{case.group}-consumer",
        member_id="a",
        member_epoch=0,
        rebalance_timeout=60_000,
        subscribed_topic_names=[INTERNAL],
        topic_partitions=[],
    )
    for time in (-1, -2):
        partition = {"partition_index": 0, "timestamp": time, "current_leader_epoch": -1}
        topics = [{"name": INTERNAL, "partitions": [partition]}]
        case.pair.ask("list_offsets", case.v("list_offsets"), replica_id=-1, topics=topics)
    case.pair.ask(
        "describe_configs",
        case.v("describe_configs"),
        resources=[
            {
                "resource_type": TOPIC_KIND,
                "resource_name": INTERNAL,
                "configuration_keys": ["retention.ms"],
            }
        ],
    )
    _alter(case, change(TOPIC_KIND, INTERNAL, ("retention.ms", SET, "1")))
    _alter(case, change(TOPIC_KIND, INTERNAL))
    grow(case, (INTERNAL, 60))
    _fetch(case)
    data = [{"name": INTERNAL, "partition_data": [{"index": 0, "records": BATCH}]}]
    how = {"transactional_id": None, "acks": -1}
    case.pair.ask("produce", min(12, case.v("produce", 3)), topic_data=data, **how)


def _fetch(case: Case) -> None:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000,
    }
    case.pair.ask(
        "fetch",
        min(12, case.v("fetch")),  # later versions name an id
        replica_id=-1,
        max_wait=10,
        min_bytes=0,
        max_bytes=1_000,
        session_epoch=-1,
        topics=[{"topic": INTERNAL, "partitions": [partition]}],
        forgotten_topics_data=[],
        rack_id="",
    )
