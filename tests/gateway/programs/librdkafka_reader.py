"""Reads a topic of numbers as a member of a group, until it is killed: BOOTSTRAP TOPIC GROUP
PARTITIONS. It prints the lines that ``tests/helpers/gateway/readers.py`` explains.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition


def run(bootstrap: str, topic: str, group: str, partitions: int) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 20_000,
        "heartbeat.interval.ms": 1_000,
        "topic.metadata.refresh.interval.ms": 2_000,
        "reconnect.backoff.max.ms": 500,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic], on_assign=lambda *_: _say("assigned"))
    while True:
        by_partition: dict[int, list[Message]] = {}
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                by_partition.setdefault(message.partition(), []).append(message)
        next_offsets = []
        for partition, messages in by_partition.items():
            next_offsets.append(TopicPartition(topic, partition, _read(messages, partitions)))
        if next_offsets:
            _commit(consumer, next_offsets)


def _read(messages: list[Message], partitions: int) -> int:
    first, partition = messages[0].offset(), messages[0].partition()
    for n, message in enumerate(messages):
        offset = message.offset()
        if offset != first + n or int(message.value()) != offset * partitions + partition:
            _say("wrong", partition, offset)
    end = first + len(messages)
    _say("read", partition, first, end)
    return end


def _commit(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        sys.stdout.write(f"failed {error}\n")
        return
    for each in offsets:
        _say("committed", each.partition, each.offset)


def _say(word: str, *numbers: int) -> None:
    numbers = (int(time.time() * 1000), *numbers)
    sys.stdout.write(" ".join([word, *map(str, numbers)]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run(*sys.argv[1:4], int(sys.argv[4]))
