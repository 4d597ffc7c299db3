"""Two members that share the partitions of a topic through Consul, and read it to its end.

Run it with a Consul and a Kafka that has the topic:
    python examples/readers.py 127.0.0.1:8500 127.0.0.1:9092 TOPIC PARTITIONS
It needs the extra consul: pip install '.[consul]'. docs/use/consul.md explains each call.
"""

import asyncio
import sys

from groupkeeper.clients.readers.consul_group import ConsulGroup
from groupkeeper.clients.readers.partition_log import LATEST
from groupkeeper.clients.readers.reader import Reader

QUIET_S = 2


async def member(name: str, consul: str, brokers: str, topic: str, partitions: int) -> None:
    async with ConsulGroup("example", consul, scheme="spread", lock_delay_ms=1_000) as group:
        share = await group.new_readers(brokers, topic, partitions, buffer=100)
        count, last = 0, {}
        messages = share.read()  # begins where the group committed last
        while True:
            try:
                message = await asyncio.wait_for(anext(messages), QUIET_S)
            except TimeoutError:
                break  # nothing new for a while: the example ends, a service would go on
            count += 1
            last[message.partition] = message
            if count % 100 == 0:
                await asyncio.gather(*map(share.commit, last.values()))
                last.clear()
        await asyncio.gather(*map(share.commit, last.values()))
        print(f"{name}: {count} messages of partitions {share.partitions}", flush=True)


async def main(consul: str, brokers: str, topic: str, partitions: int) -> None:
    # without a group: one partition, from any offset
    async with Reader(brokers, topic, 0) as reader:
        first = await anext(reader.read(0))
        print(f"first message of partition 0: {first.value!r}")
        waiting = reader.read(LATEST)  # only what comes from now on
        await waiting.close()

    async with asyncio.TaskGroup() as both:
        for name in ("one", "two"):
            both.create_task(member(name, consul, brokers, topic, partitions))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
