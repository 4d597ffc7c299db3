"""kafka-python: pip install kafka-python"""

import sys

from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
consumer = KafkaConsumer(
    "orders", bootstrap_servers=bootstrap, group_id="billing", enable_auto_commit=False
)
# both lines are for kafka-python 3.0: without them its join can hang, whatever the server is
consumer.partitions_for_topic("orders")
while not consumer.assignment():
    consumer.poll(timeout_ms=1000)

partition = TopicPartition("orders", 0)
consumer.commit({partition: OffsetAndMetadata(42, "", -1)})
print(f"orders 0: {consumer.committed(partition)}")
consumer.close()
