"""Runs the work of a command of ``groupkeeper zookeeper`` with an open registry.

A registry is the groups that consumers keep in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from groupkeeper.coordinator.cli.failing import FAILED, USAGE, fail
from groupkeeper.coordinator.cli.stopping import run_stoppable
from groupkeeper.coordinator.cli.zookeeper.options import registry_of

if TYPE_CHECKING:
    from groupkeeper.clients.zookeeper.registry import Registry

Result = TypeVar("Result")
Work = Callable[["Registry"], Awaitable[Result]]


def run(
    place: tuple[str, Path | None, float], work: Work[Result], session_timeout_ms: int = 6_000
) -> Result:
    """Open the registry, run the work, close the registry, and return the result of the work. If
    ZooKeeper fails or a name is invalid, print one line and exit."""
    from groupkeeper.clients.zookeeper.errors import InvalidName, ZooKeeperError

    async def with_registry() -> Result:
        async with registry_of(*place, session_timeout_ms) as registry:
            return await work(registry)

    try:
        return run_stoppable(with_registry)
    except InvalidName as error:
        fail(str(error), USAGE)
    except ZooKeeperError as error:
        fail(str(error), FAILED)
