"""A move to and from each server that is interrupted at its requests: killed,
suspended, or cut off.

A repeated move must make the target equal to the source, and the source must
be as before.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from groupkeeper.coordinator.core.records import GroupConfigs, TopicRecord
from groupkeeper.storage.open import open_storage
from tests.helpers.core.records import TOPIC_ID, commit, group_record
from tests.helpers.storage.cut_proxy import CutProxy
from tests.helpers.storage.kafka_access import KafkaAccess
from tests.helpers.storage.moving import TIMEOUT_MS, TTL_MS, MovingProcess, Outcome, run_move
from tests.helpers.storage.storage_owner import Owner

SERVERS = ("postgres", "zookeeper", "consul", "kafka")
MARKS = {"kafka": "kafka_topic"}
SHORT_STEPS = 5
NAMES = ["", "a/b", ".", "\0", "plain"]


class Place:
    """New stores on one server."""

    def __init__(self, kind: str, server: Any) -> None:
        self.kind = kind
        self.server = server

    def new(self) -> str:
        """Return the name of a store that does not exist yet."""
        return f"s{uuid.uuid4().hex}"

    def url(self, name: str, port: int | None = None) -> str:
        at = f"127.0.0.1:{port or self.server.port}"
        if self.kind == "postgres":
            url = str(self.server.url).replace(str(self.server.port), str(port or self.server.port))
            return f"{url}{'&' if '?' in url else '?'}schema={name}"
        return f"{self.kind}://{at}/{name}"


class Direction:
    """Moves from a store on a server into files, or from a file into stores on a server."""

    def __init__(self, place: Place, folder: Path, *, from_server: bool) -> None:
        self.place = place
        self.from_server = from_server
        self._folder = folder
        self._source = place.new() if from_server else "source"

    def _file(self, name: str) -> str:
        return f"sqlite:///{self._folder / name}.db"

    def source(self, port: int | None = None) -> str:
        if self.from_server:
            return self.place.url(self._source, port)
        return self._file(self._source)

    def target(self, name: str, port: int | None = None) -> str:
        return self._file(name) if self.from_server else self.place.url(name, port)

    def pair(self, name: str, port: int | None = None) -> tuple[str, str]:
        """Return the URLs of both stores. ``port`` is that of a proxy in front of the server."""
        return self.source(port), self.target(name, port)


@pytest.fixture(
    params=[
        pytest.param(name, marks=getattr(pytest.mark, MARKS.get(name, name))) for name in SERVERS
    ]
)
def place(request: pytest.FixtureRequest) -> Place:
    return Place(request.param, request.getfixturevalue(request.param))


@pytest.fixture(params=["from the server", "to the server"])
def direction(place: Place, request: pytest.FixtureRequest, tmp_path: Path) -> Direction:
    return Direction(place, tmp_path, from_server=request.param == "from the server")


def owner_of(url: str) -> Owner:
    return Owner(open_storage(url, append_timeout_ms=TIMEOUT_MS, lease_ttl_ms=TTL_MS))


async def content(url: str) -> dict[Any, Any]:
    """Return all records of a store."""
    owner = await owner_of(url).start()
    await owner.storage.close()
    return owner.model.keys


async def filled(url: str) -> dict[Any, Any]:
    """Write some groups, of which one needs several portions. Return what the store has."""
    owner = await owner_of(url).start()
    await owner.append(-1, [TopicRecord("orders", TOPIC_ID, 30), GroupConfigs("a/b", {"a": "1"})])
    for name in NAMES:
        await owner.append(1, [group_record(name), commit(name, 7, partitions=30)])
    await owner.append(
        2, [group_record("large"), commit("large", 5, partitions=600, metadata="m" * 400)]
    )
    await owner.fold_all()
    await owner.append(3, [commit("not folded", 1)])
    await owner.storage.close()
    return owner.model.keys


async def moved(source: str, target: str) -> Outcome:
    return await asyncio.to_thread(run_move, source, target)


async def stopped_at(urls: tuple[str, str], step: int, **options: Any) -> MovingProcess | None:
    """Start a move that stops at a request. Return None if it has ended before."""
    move = MovingProcess(*urls, stop_at=step, **options)
    if await asyncio.to_thread(move.wait_stopped):
        return move
    assert await asyncio.to_thread(move.outcome)
    return None


async def steps_of(direction: Direction) -> int:
    """Return the number of requests of a whole move."""
    outcome = await moved(*direction.pair(direction.place.new()))
    assert outcome.error == ""
    return outcome.requests


def some_of(steps: int) -> list[int]:
    """Return a few requests, with the first and the last one."""
    return sorted({1 + (steps - 1) * number // (SHORT_STEPS - 1) for number in range(SHORT_STEPS)})


async def check_completed(direction: Direction, target: str, wanted: dict[Any, Any]) -> None:
    """Repeat a move. Check that both stores have what the source should have."""
    outcome = await moved(*direction.pair(target))
    assert outcome.error == ""
    assert await content(direction.target(target)) == wanted
    assert await content(direction.source()) == wanted


async def kill_at(direction: Direction, step: int, wanted: dict[Any, Any], in_flight: bool) -> None:
    target = direction.place.new()
    move = await stopped_at(direction.pair(target), step, in_flight=in_flight)
    if move is not None:
        move.kill()
    await check_completed(direction, target, wanted)


@pytest.mark.storage_long
@pytest.mark.parametrize("in_flight", [False, True])
async def test_a_move_that_is_killed_at_each_request_completes(
    direction: Direction, in_flight: bool
) -> None:
    wanted = await filled(direction.source())
    for step in range(1, await steps_of(direction) + 1):
        await kill_at(direction, step, wanted, in_flight)


async def test_a_group_of_many_megabytes_moves_through_a_server(
    place: Place, tmp_path: Path
) -> None:
    """It is larger than a request may be, and so are its members together."""
    urls = [f"sqlite:///{tmp_path}/old.db", place.url(place.new()), f"sqlite:///{tmp_path}/new.db"]
    owner = await owner_of(urls[0]).start()
    group = group_record("large", members=3)
    members = [replace(each, subscription=b"\xff" * 600_000) for each in group.members]
    await owner.append(1, [replace(group, members=tuple(members))])
    for topic in "abcd":
        rows = commit("large", 5, topic=topic, partitions=600, metadata="\0m\u00e9" * 300)
        await owner.append(1, [rows])
    await owner.storage.close()
    for source, target in pairwise(urls):
        assert (await moved(source, target)).error == ""
    for url in urls[1:]:
        assert await content(url) == owner.model.keys


async def test_a_move_that_is_killed_again_and_again_completes(direction: Direction) -> None:
    """Each attempt begins on what the one before has left in the same target."""
    wanted = await filled(direction.source())
    steps, target = some_of(await steps_of(direction)), direction.place.new()
    for number, step in enumerate(steps):
        move = await stopped_at(direction.pair(target), step, in_flight=bool(number % 2))
        if move is not None:
            move.kill()
    await check_completed(direction, target, wanted)


@pytest.mark.parametrize("direction", ["from the server"], indirect=True)
@pytest.mark.parametrize("share", [0.25, 0.5])
async def test_a_suspended_move_notices_a_daemon_on_the_old_store(
    direction: Direction, share: float
) -> None:
    """The daemon acknowledges a commit, which must not be missing after the move. A move that has
    not read the store yet may begin again with it.
    """
    await filled(direction.source())
    target, step = direction.place.new(), int(await steps_of(direction) * share)
    move = await stopped_at(direction.pair(target), step)
    assert move is not None
    owner = await owner_of(direction.source()).start()
    await owner.append(1, [commit("plain", 8)])
    await owner.storage.close()
    move.go_on()
    if not (await asyncio.to_thread(move.outcome)).error:
        assert await content(direction.target(target)) == owner.model.keys
    await check_completed(direction, target, owner.model.keys)


@pytest.mark.parametrize("direction", ["to the server"], indirect=True)
async def test_a_suspended_move_writes_nothing_into_a_store_that_a_daemon_uses(
    direction: Direction,
) -> None:
    wanted = await filled(direction.source())
    target, step = direction.place.new(), await steps_of(direction) // 2
    move = await stopped_at(direction.pair(target), step)
    assert move is not None
    owner = await owner_of(direction.target(target)).start()
    before = owner.model.keys
    move.go_on()
    assert (await asyncio.to_thread(move.outcome)).error
    await owner.reload()
    assert owner.model.keys == before
    await owner.storage.close()
    await check_completed(direction, target, wanted)


@pytest.fixture
async def proxy(place: Place, request: pytest.FixtureRequest) -> AsyncIterator[CutProxy]:
    """A proxy in front of the server. Kafka's clients connect to the port that a broker names."""
    if place.kind == "kafka":
        access: KafkaAccess = request.getfixturevalue("kafka_access")
        proxy = CutProxy(access.cut_port, access.proxy_port)
    else:
        proxy = CutProxy(place.server.port)
    await proxy.start()
    yield proxy
    proxy.heal()
    await proxy.stop()


async def test_a_move_whose_server_becomes_silent_ends_and_completes(
    direction: Direction, proxy: CutProxy
) -> None:
    wanted = await filled(direction.source())
    target, steps = direction.place.new(), await steps_of(direction)
    move = await stopped_at(direction.pair(target, proxy.port), steps // 2)
    assert move is not None
    proxy.cut("there", "back")
    move.go_on()
    try:
        outcome = await asyncio.to_thread(move.outcome)
    finally:
        proxy.heal()
        proxy.break_all()
    assert "answer" in outcome.error
    await check_completed(direction, target, wanted)
