"""confluent-kafka (librdkafka): pip install confluent-kafka"""

import sys

from confluent_kafka import Consumer, TopicPartition

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
consumer = Consumer(
    {"bootstrap.servers": bootstrap, "group.id": "billing", "enable.auto.commit": False}
)
consumer.subscribe(["orders"])
while not consumer.assignment():
    consumer.poll(0.1)

consumer.commit(offsets=[TopicPartition("orders", 0, 42)], asynchronous=False)
(found,) = consumer.committed([TopicPartition("orders", 0)])
print(f"orders 0: {found.offset}")
consumer.close()
