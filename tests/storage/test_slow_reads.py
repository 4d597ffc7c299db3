"""A large group in a store whose answers are slow: it is loaded, although that takes longer than an
append may take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.helpers.core.records import commit
from tests.helpers.storage.consul_site import ConsulSite
from tests.helpers.storage.zookeeper_site import ZooKeeperSite

SITES: dict[str, Any] = {"zookeeper": ZooKeeperSite, "consul": ConsulSite}
TIMEOUT_MS = 3_000
SLOW_S = 0.7
LARGE = commit("g", 5, partitions=1_000, metadata="m" * 4_000)
"""32 parts, which are read 8 at a time."""


def slow(call: Callable[..., Awaitable[Any]], is_slow: Callable[..., bool]) -> Any:
    async def slowed(self: Any, *arguments: Any) -> Any:
        if is_slow(*arguments):
            await asyncio.sleep(SLOW_S)
        return await call(self, *arguments)

    return slowed


def slow_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each read of values slow."""
    from groupkeeper.storage.backends.zookeeper import values
    from groupkeeper.storage.connections.consul import ConsulClient
    from groupkeeper.storage.connections.zookeeper import ZooKeeperSession

    monkeypatch.setattr(values, "CALLS_AT_ONCE", 8)
    is_value = lambda path: "/groups/" in path  # noqa: E731
    monkeypatch.setattr(ZooKeeperSession, "get", slow(ZooKeeperSession.get, is_value))
    is_read = lambda *each: all("parts/" in operation["Key"] for operation in each)  # noqa: E731
    monkeypatch.setattr(ConsulClient, "execute", slow(ConsulClient.execute, is_read))


@pytest.mark.parametrize(
    "kind", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in SITES]
)
async def test_a_group_that_takes_long_to_read_is_loaded(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = SITES[kind](request.getfixturevalue(kind))
    owner = await site.owner()
    await owner.append(0, [LARGE])
    await owner.fold_all()
    await owner.storage.close()
    slow_down(monkeypatch)
    again = await site.owner(timeout_ms=TIMEOUT_MS)
    assert again.model.keys == owner.model.keys
    await again.storage.close()
