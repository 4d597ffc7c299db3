"""kazoo-go as a process: orders and answers are lines of JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any, Self

from tests.helpers.clients.ecosystem import go_program

FOLDER = Path(__file__).parents[2] / "registry" / "zookeeper" / "go"
ANSWER_LIMIT_S = 20


class KazooGoError(Exception):
    """An error of kazoo-go. The message is its name."""


class KazooGo:
    """One session of kazoo-go. Raises ``ecosystem.Unavailable`` if Go is missing."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._orders = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._fired: dict[int, asyncio.Event] = {}

    async def __aenter__(self) -> Self:
        command = await asyncio.to_thread(go_program, "kazoo-go", FOLDER)
        self._process = await asyncio.create_subprocess_exec(
            *command, self._servers, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the session with ``Close``, as users of kazoo-go do."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), ANSWER_LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            assert self._reading is not None
            await self._reading

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            answer = json.loads(line)
            if answer.get("fired"):
                self._fired[answer["id"]].set()
            else:
                self._answers.pop(answer["id"]).set_result(answer)

    async def call(self, name: str, **arguments: Any) -> Any:
        """Call a function, and return its result. Raises KazooGoError."""
        value, _ = await self.watch(name, **arguments)
        return value

    async def watch(self, name: str, **arguments: Any) -> tuple[Any, asyncio.Event]:
        """Call a function that watches. Return its result, and an event that is set when the
        channel of the watch gets a value.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        self._orders += 1
        order = {"id": self._orders, "call": name, **arguments}
        fired = self._fired[self._orders] = asyncio.Event()
        future = self._answers[self._orders] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        answer = await asyncio.wait_for(future, ANSWER_LIMIT_S)
        if answer.get("error"):
            raise KazooGoError(answer["error"])
        return answer["value"], fired
