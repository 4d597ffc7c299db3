"""Holds a registration and a claim, and says each line what it knows; to be stopped by a test."""

from __future__ import annotations

import asyncio
import sys

from groupkeeper.clients.zookeeper.registry import Registry
from groupkeeper.storage.connections.zookeeper_errors import SessionLost


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def hold(servers: str, timeout_ms: int) -> None:
    async with Registry(servers, session_timeout_ms=timeout_ms) as registry:
        instance = registry.group("billing").instance("held")
        await instance.register(["orders"])
        await instance.claim_partition("orders", 0)
        say("holds")
        while True:
            # the pause is where the test stops this process
            await asyncio.to_thread(sys.stdin.readline)
            try:
                say(f"registered {await instance.registered()}")
            except SessionLost:
                say("SessionLost")
                return


asyncio.run(hold(sys.argv[1], int(sys.argv[2])))
