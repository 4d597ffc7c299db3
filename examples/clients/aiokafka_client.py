"""aiokafka: pip install aiokafka"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, TopicPartition

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"


async def main() -> None:
    """Join, commit, read back."""
    consumer = AIOKafkaConsumer(
        "orders", bootstrap_servers=bootstrap, group_id="billing", enable_auto_commit=False
    )
    await consumer.start()  # returns with an assignment
    try:
        partition = TopicPartition("orders", 0)
        await consumer.commit({partition: 42})
        print(f"orders 0: {await consumer.committed(partition)}")
    finally:
        await consumer.stop()


asyncio.run(main())
