"""A process of a spread group, which writes down what it reads, as it reads it.

    python -m tests.registry.readers.reader_process CONSUL BROKER GROUP TOPIC PARTITIONS FILE
        [AT_ONCE PAUSE_S]

It says ``settled`` when it has its share, begins with ``go``, and hurries from ``fast`` on. Each
message is a line of the file: the clock of the machine, partition, offset. It commits after
every AT_ONCE messages and then pauses, ends at ``stop``, and says ``lost`` when its session is.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import NamedTuple

from groupkeeper.clients.readers.consul_group import ConsulGroup
from groupkeeper.clients.readers.errors import PartitionLost, SessionEnded
from groupkeeper.clients.readers.message import Message
from groupkeeper.clients.readers.message_iter import MessageIter
from groupkeeper.clients.readers.spread_readers import SpreadReaders

AT_ONCE = 500
PAUSE_S = 0.2
TTL_MS = 10_000
LOCK_DELAY_MS = 1_000


class Orders:
    """What the parent says, a word a line."""

    def __init__(self) -> None:
        self.go, self.fast, self.stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def listen(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async for line in reader:
            getattr(self, line.decode().strip()).set()


class Pace(NamedTuple):
    """How many messages are read at once, and how long the pause after them is."""

    at_once: int = AT_ONCE
    pause_s: float = PAUSE_S


async def read(
    share: SpreadReaders, messages: MessageIter, orders: Orders, file: int, pace: Pace
) -> None:
    count = 0
    last: dict[int, Message] = {}
    async for message in messages:
        os.write(file, b"%d %d %d\n" % (time.monotonic_ns(), message.partition, message.offset))
        last[message.partition] = message
        count += 1
        if count % pace.at_once == 0:
            # what was handed over is not ours to commit, and read again by its owner
            commits = (share.commit(each) for each in last.values())
            done = await asyncio.gather(*commits, return_exceptions=True)
            assert {type(each) for each in done} <= {type(None), PartitionLost, SessionEnded}
            last = {}
            if not orders.fast.is_set():
                await asyncio.sleep(pace.pause_s)


async def main(consul: str, broker: str, group: str, topic: str, *rest: str) -> None:
    partitions, path, *given = rest
    pace = Pace(int(given[0]), float(given[1])) if given else Pace()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    orders = Orders()
    listening = asyncio.create_task(orders.listen())
    member = ConsulGroup(group, consul, scheme="spread", ttl_ms=TTL_MS, lock_delay_ms=LOCK_DELAY_MS)
    async with member:
        share = await member.new_readers(broker, topic, int(partitions), buffer=100)
        sys.stdout.write("settled\n")
        sys.stdout.flush()
        await orders.go.wait()
        messages = share.read()
        reading = asyncio.create_task(read(share, messages, orders, file, pace))
        stopping = asyncio.create_task(orders.stop.wait())
        await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in (listening, stopping):
            task.cancel()
        if not reading.done():
            reading.cancel()
        try:
            await reading
        except asyncio.CancelledError:
            sys.stdout.write("stopped\n")
        except PartitionLost as error:
            sys.stdout.write(f"lost {error}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
