"""Shards under a virtual clock, whose logs are replayed when the test is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.core.shard_driver import ShardDriver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def make_driver() -> Iterator[Callable[..., ShardDriver]]:
    """Makes drivers; at the end, log and fold must both rebuild what each shard holds."""
    made: list[ShardDriver] = []

    def make(**fields: Any) -> ShardDriver:
        made.append(ShardDriver(**fields))
        return made[-1]

    yield make
    for driver in made:
        driver.check_replay()


@pytest.fixture
def driver(make_driver: Callable[..., ShardDriver]) -> ShardDriver:
    """A driver with Kafka's defaults."""
    return make_driver()
