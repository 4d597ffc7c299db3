"""Workers that share the partitions of a topic through ZooKeeper, without a coordinator.

Run it with a ZooKeeper: python examples/registry.py 127.0.0.1:2181/example
It needs the extra zookeeper: pip install '.[zookeeper]'. docs/use/zookeeper.md explains each call.
"""

import asyncio
import contextlib
import sys

from groupkeeper.clients.zookeeper.errors import PartitionClaimedByOther, SessionLost
from groupkeeper.clients.zookeeper.registry import Registry

TOPIC = "orders"
PARTITIONS = 6


async def work(servers: str, name: str, leaves: asyncio.Event) -> None:
    """Hold a share of the partitions, until it is asked to leave or the session is lost."""
    async with Registry(servers) as registry:
        group = registry.group("billing")
        me = group.instance(name)
        await me.register([TOPIC])
        mine: set[int] = set()
        leaving = asyncio.create_task(leaves.wait())
        async with await group.watch_instances() as watch:
            instances = watch.current
            while not leaves.is_set():
                names = [each.id for each in instances]
                share = set(range(names.index(name), PARTITIONS, len(names)))
                for partition in mine - share:
                    # a real worker finishes its messages and commits before it lets go
                    await group.commit_offset(TOPIC, partition, 100 + partition)
                    await me.release_partition(TOPIC, partition)
                mine &= share
                for partition in share - mine:
                    await claim(group, me, partition)
                    offset = await group.fetch_offset(TOPIC, partition)
                    mine.add(partition)
                    print(f"{name} reads {TOPIC}-{partition} from {offset}", flush=True)
                changed = asyncio.ensure_future(anext(watch))
                await asyncio.wait((changed, leaving), return_when=asyncio.FIRST_COMPLETED)
                if changed.done():
                    instances = changed.result()
                else:
                    changed.cancel()
        for partition in sorted(mine):
            await group.commit_offset(TOPIC, partition, 200 + partition)
    # the session has ended: registration and claims are gone, the offsets stay
    print(f"{name} has left", flush=True)


async def claim(group, me, partition) -> None:
    """Claim a partition; wait for the one who has it, without asking again and again."""
    while True:
        try:
            await me.claim_partition(TOPIC, partition)
            return
        except PartitionClaimedByOther:
            async with await group.watch_partition_owner(TOPIC, partition) as owner:
                while owner.current is not None:
                    await anext(owner)


async def owners(servers: str, wanted: dict[int, str]) -> None:
    """Wait until the partitions are shared out as expected."""
    async with Registry(servers) as registry:
        group = registry.group("billing")
        while (await group.owners()).get(TOPIC) != wanted:  # noqa: ASYNC110  many nodes, one look
            await asyncio.sleep(0.05)
        print(f"owners: {wanted}", flush=True)


async def main(servers: str) -> None:
    async with Registry(servers) as registry:
        await registry.group("billing").reset_offsets()  # what an earlier run has left
    a_leaves, b_leaves = asyncio.Event(), asyncio.Event()
    a = asyncio.create_task(work(servers, "a", a_leaves))
    await owners(servers, dict.fromkeys(range(PARTITIONS), "a"))
    b = asyncio.create_task(work(servers, "b", b_leaves))
    await owners(servers, {n: "ab"[n % 2] for n in range(PARTITIONS)})
    a_leaves.set()
    await a
    await owners(servers, dict.fromkeys(range(PARTITIONS), "b"))
    b_leaves.set()
    await b
    async with Registry(servers) as registry:
        group = registry.group("billing")
        print(f"committed: {(await group.fetch_all_offsets())[TOPIC]}")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:2181/example"))
        except SessionLost as lost:
            sys.exit(f"start again: {lost}")
