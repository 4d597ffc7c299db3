"""Run the work of a command with an open registry."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from groupkeeper.coordinator.cli.failing import FAILED, USAGE, fail
from groupkeeper.coordinator.cli.zookeeper.options import registry_of

if TYPE_CHECKING:
    from groupkeeper.clients.zookeeper.registry import Registry

Result = TypeVar("Result")
Work = Callable[["Registry"], Awaitable[Result]]


def run(
    place: tuple[str, Path | None, float], work: Work[Result], session_timeout_ms: int = 6_000
) -> Result:
    """Open the registry, run the work and close it. An expected failure prints one line and
    exits."""
    from groupkeeper.clients.zookeeper.errors import InvalidName, ZooKeeperError

    stopped: list[int] = []

    async def doing() -> Result:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            stopped.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        async with registry_of(*place, session_timeout_ms) as registry:
            return await work(registry)

    try:
        return asyncio.run(doing())
    except asyncio.CancelledError:
        raise typer.Exit(128 + stopped[0] if stopped else FAILED) from None
    except InvalidName as error:
        fail(str(error), USAGE)
    except ZooKeeperError as error:
        fail(str(error), FAILED)
