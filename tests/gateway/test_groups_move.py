"""Groups of a real Kafka come to the daemon in front of it, and go back."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from groupkeeper.coordinator.cli.main import app
from tests.helpers.clients.real_kafka import RealKafka
from tests.helpers.daemon.gateways import a_gateway
from tests.helpers.daemon.servers import Groupkeeper

pytestmark = [pytest.mark.gateway, pytest.mark.slow, pytest.mark.java]

RECORDS = 100
LIMIT_S = 60


@pytest.fixture(scope="module")
def moving(kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groupkeeper]:
    """A daemon that adopts groups, and mirrors their commits."""
    settings = {
        "upstream.adopt": True,
        "upstream.mirror": True,
        "metrics.groups": "partitions",
        # a poll alone would be too late for the new topics of a test
        "upstream.metadata_refresh_ms": 2_000,
    }
    daemon = a_gateway(tmp_path_factory.mktemp("moving"), kafka.bootstrap, settings)
    try:
        yield daemon.start()
    finally:
        daemon.stop()


def at(port: int) -> str:
    return f"127.0.0.1:{port}"


def a_topic(kafka: RealKafka, partitions: int = 1) -> str:
    """Create a topic with records, upstream."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(LIMIT_S)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for n in range(RECORDS):
        producer.produce(name, value=str(n))
    assert producer.flush(LIMIT_S) == 0
    return name


def a_consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def read(consumer: Consumer, count: int) -> list[int]:
    """Read records, and commit behind them."""
    values: list[int] = []
    end = time.monotonic() + LIMIT_S
    while len(values) < count and time.monotonic() < end:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            values.append(int(message.value()))
            last = message
    consumer.commit(message=last, asynchronous=False)
    return values


def committed(bootstrap: str, group: str, topic: str) -> int:
    consumer = a_consumer(bootstrap, group)
    try:
        (place,) = consumer.committed([TopicPartition(topic, 0)], timeout=LIMIT_S)
    finally:
        consumer.close()
    return int(place.offset)


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end, f"not within {LIMIT_S} s"
        time.sleep(0.2)


def test_a_group_goes_on_where_it_was_and_may_go_back(
    kafka: RealKafka, moving: Groupkeeper
) -> None:
    topic, group = a_topic(kafka), f"g-{uuid.uuid4().hex[:8]}"
    there = a_consumer(kafka.bootstrap, group)
    there.subscribe([topic])
    assert read(there, 40) == [*range(40)]

    here = a_consumer(at(moving.port), group)
    here.subscribe([topic])
    for _ in range(10):
        assert here.poll(0.2) is None  # it has a member there: no group is in two places
    there.close()
    assert read(here, 30) == [*range(40, 70)]
    here.close()

    wait_until(lambda: committed(kafka.bootstrap, group, topic) == 70)
    back = a_consumer(kafka.bootstrap, group)
    back.subscribe([topic])
    assert read(back, 30) == [*range(70, 100)]
    back.close()


def test_a_group_that_was_deleted_here_does_not_come_back(
    kafka: RealKafka, moving: Groupkeeper
) -> None:
    topic, group = a_topic(kafka), f"g-{uuid.uuid4().hex[:8]}"
    there = a_consumer(kafka.bootstrap, group)
    there.commit(offsets=[TopicPartition(topic, 0, 12)], asynchronous=False)
    there.close()
    assert committed(at(moving.port), group, topic) == 12
    admin = AdminClient({"bootstrap.servers": at(moving.port)})
    admin.delete_consumer_groups([group])[group].result(LIMIT_S)
    moving.kill()
    moving.start()
    assert committed(at(moving.port), group, topic) == OFFSET_INVALID
    assert committed(kafka.bootstrap, group, topic) == 12


def test_a_large_group_comes_over_in_portions(kafka: RealKafka, moving: Groupkeeper) -> None:
    """A third of a megabyte of metadata needs several commits here."""
    partitions = 100
    topic, group = a_topic(kafka, partitions), f"g-{uuid.uuid4().hex[:8]}"
    wanted = {number: 1_000 + number for number in range(partitions)}
    there = a_consumer(kafka.bootstrap, group)
    for number, offset in wanted.items():
        place = TopicPartition(topic, number, offset, metadata="m" * 4_000)
        there.commit(offsets=[place], asynchronous=False)
    there.close()
    here = a_consumer(at(moving.port), group)
    places = here.committed([TopicPartition(topic, number) for number in wanted], timeout=LIMIT_S)
    here.close()
    assert {place.partition: place.offset for place in places} == wanted


def test_a_commit_for_a_topic_that_was_just_created_is_stored(
    kafka: RealKafka, moving: Groupkeeper
) -> None:
    for _ in range(3):
        topic, group = a_topic(kafka), f"g-{uuid.uuid4().hex[:8]}"
        consumer = a_consumer(at(moving.port), group)
        consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
        consumer.close()
        assert committed(at(moving.port), group, topic) == 5


def test_a_commit_for_a_topic_that_does_not_exist_is_refused(moving: Groupkeeper) -> None:
    consumer = a_consumer(at(moving.port), "nobody")
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        consumer.commit(offsets=[TopicPartition("absent", 0, 5)], asynchronous=False)
    consumer.close()


def test_lag_is_the_distance_to_the_end_at_the_broker(
    kafka: RealKafka, moving: Groupkeeper
) -> None:
    topic, group = a_topic(kafka), f"g-{uuid.uuid4().hex[:8]}"
    consumer = a_consumer(at(moving.port), group)
    consumer.commit(offsets=[TopicPartition(topic, 0, 30)], asynchronous=False)
    consumer.close()

    def lag() -> int | None:
        _, text = moving.get("/metrics")
        row = rf'^kafka_consumergroup_lag{{.*consumergroup="{group}".*}} (\d+)'
        found = re.search(row, text, re.MULTILINE)
        return None if found is None else int(found[1])

    wait_until(lambda: lag() == RECORDS - 30)


def test_the_command_line_copies_groups_both_ways(
    kafka: RealKafka, gateway: Groupkeeper, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    topic, group = a_topic(kafka), f"cli-{uuid.uuid4().hex[:8]}"
    there = a_consumer(kafka.bootstrap, group)
    there.commit(offsets=[TopicPartition(topic, 0, 12)], asynchronous=False)
    there.close()
    where = ["--upstream", kafka.bootstrap, "--server", at(gateway.port), "--group", group]

    def run(name: str) -> None:
        result = CliRunner().invoke(app, ["upstream", name, *where, "--apply"])
        assert result.exit_code == 0, result.output

    run("import")
    assert committed(at(gateway.port), group, topic) == 12
    here = a_consumer(at(gateway.port), group)
    here.commit(offsets=[TopicPartition(topic, 0, 20)], asynchronous=False)
    here.close()
    run("export")
    assert committed(kafka.bootstrap, group, topic) == 20
