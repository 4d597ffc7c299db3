"""A conversion is one step for the store: what fails or is killed within it converts nothing, or
all. Nobody stays unanswered, and the group can be converted afterwards.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.requests.admin import DescribeGroup
from groupkeeper.coordinator.core.requests.consumer import ConsumerGroupDescribe
from groupkeeper.coordinator.core.requests.membership import JoinProtocol
from groupkeeper.protocol.consumer_protocol import Subscription, encode_subscription
from groupkeeper.storage.backends.sqlite import packed
from groupkeeper.storage.backends.sqlite.store import SqliteOffsetStorage
from tests.helpers.core.consumer_members import a_consumer_heartbeat
from tests.helpers.core.mixed_groups import assigned
from tests.helpers.runtime.coordinator import (
    TOPICS,
    RecordingTicket,
    World,
    a_coordinator,
    a_world,
)
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import Fault, Gate, fail, fence, late, lie, slow
from tests.helpers.storage.spying_connection import Spy
from tests.helpers.storage.storage_owner import IDENTITY, Owner
from tests.helpers.storage.writer_connection import connecting

NONE = ErrorCode.NONE
CLASSIC, CONSUMER = GroupType.CLASSIC, GroupType.CONSUMER
FRAME_BYTES = 24 + 4096
"""Of a page in SQLite's log."""
LARGE = b"x" * 60_000
"""User data of a subscription. It is stored in more pages than a full store has left."""


def protocols() -> tuple[JoinProtocol, ...]:
    """What a classic member sends: its record is large."""
    return (JoinProtocol("range", encode_subscription(Subscription(1, ["orders"], LARGE, {}))),)


async def a_classic_group(world: World) -> str:
    """One classic member, which has everything."""
    join = world.join(protocols=protocols())
    await world.until(join)
    member_id = join.result.member_id
    sync = world.sync("g", member_id, 1, ((member_id, assigned(*range(12))),))
    await world.until(sync)
    assert sync.error is NONE
    return str(member_id)


def join_as_consumer(world: World, member_id: str = "new", **changes: Any) -> RecordingTicket:
    fields = {
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ("orders",),
        "owned": (),
    }
    return world.send(a_consumer_heartbeat("g", member_id, **{**fields, **changes}))


def leave_as_consumer(world: World) -> RecordingTicket:
    return world.send(a_consumer_heartbeat("g", "new", member_epoch=-1))


# --- conversions: each brings a group about, and returns how it is converted ---

Act = Callable[[World], RecordingTicket]


async def upgraded_by_a_join(world: World) -> Act:
    await a_classic_group(world)
    return join_as_consumer


async def downgraded_by_a_leave(world: World) -> Act:
    await a_classic_group(world)
    await world.until(join_as_consumer(world))
    return leave_as_consumer


async def downgraded_by_a_replacement(world: World) -> Act:
    await world.until(join_as_consumer(world, group_instance_id="i"))
    return lambda world: world.join(group_instance_id="i", protocols=protocols())


async def an_empty_classic_group_replaced(world: World) -> Act:
    await world.until(world.leave("g", await a_classic_group(world)))
    return join_as_consumer


async def an_empty_consumer_group_replaced(world: World) -> Act:
    await world.until(join_as_consumer(world))
    await world.until(leave_as_consumer(world))
    return lambda world: world.join(protocols=protocols())


class Conversion(NamedTuple):
    """One way to convert a group, and its types before and after."""

    prepare: Callable[[World], Awaitable[Act]]
    before: GroupType
    after: GroupType


CONVERSIONS = [
    Conversion(upgraded_by_a_join, CLASSIC, CONSUMER),
    Conversion(downgraded_by_a_leave, CONSUMER, CLASSIC),
    Conversion(downgraded_by_a_replacement, CONSUMER, CLASSIC),
    Conversion(an_empty_classic_group_replaced, CLASSIC, CONSUMER),
    Conversion(an_empty_consumer_group_replaced, CONSUMER, CLASSIC),
]
each_conversion = pytest.mark.parametrize(
    "conversion", CONVERSIONS, ids=lambda conversion: conversion.prepare.__name__
)


def type_of_the_group(world: World) -> GroupType:
    """The type of the only group."""
    (kind,) = [key[0] for key, count in world.coordinator.groups_by_type().items() if count]
    return kind


async def members_of_the_group(world: World) -> set[str]:
    """Who is in the group, by the description of its type."""
    is_classic = type_of_the_group(world) is CLASSIC
    asked = world.send(DescribeGroup("g") if is_classic else ConsumerGroupDescribe("g"))
    await world.until(asked)
    assert asked.error is NONE
    return {member.member_id for member in asked.result.members}


# --- a store that fails ---

FAULTS: dict[str, tuple[Callable[[], Fault], bool | None]] = {
    "fails": (fail, False),
    "stores and reports failure": (lie, True),
    "is fenced": (lambda: fence(-1, 0, 1, 2, 3), False),
    "never returns": (lambda: slow(Gate()), False),
    "would store after it was given up": (lambda: late(Gate()), False),
}
"""What happens to the append, and whether it is stored."""


@each_conversion
@pytest.mark.parametrize(("fault", "is_stored"), FAULTS.values(), ids=FAULTS.keys())
@virtual_time
async def test_a_conversion_that_the_store_fails_is_made_whole_or_not_at_all(
    conversion: Conversion, fault: Callable[[], Fault], is_stored: bool
) -> None:
    async with a_coordinator() as world:
        act = await conversion.prepare(world)
        await asyncio.sleep(2)
        had = await members_of_the_group(world)
        world.storage.script("append", fault())
        lost = act(world)
        beside = world.join(group_instance_id="other", protocols=protocols())
        fetched = world.fetch("g", require_stable=True)
        await world.until(lost, beside, fetched)
        assert lost.error is not NONE
        await world.until_ready()
        if is_stored:
            assert type_of_the_group(world) is not conversion.before or had != (
                await members_of_the_group(world)
            )
        else:
            assert type_of_the_group(world) is conversion.before
            assert await members_of_the_group(world) == had


@each_conversion
@virtual_time
async def test_after_a_failed_conversion_the_next_one_succeeds(conversion: Conversion) -> None:
    async with a_coordinator() as world:
        act = await conversion.prepare(world)
        await asyncio.sleep(2)
        world.storage.script("append", fail())
        await world.until(act(world))
        await world.until_ready()
        again = act(world)
        await world.until(again)
        assert again.error is NONE
        assert type_of_the_group(world) is conversion.after


@virtual_time
async def test_a_join_that_waits_is_answered_if_the_conversion_fails() -> None:
    async with a_coordinator() as world:
        await a_classic_group(world)
        waiting = world.join(protocols=protocols())
        await turns(3)
        assert waiting.is_waiting
        world.storage.script("append", fail())
        newcomer = join_as_consumer(world)
        await world.until(waiting, newcomer)
        await world.until_ready()
        assert type_of_the_group(world) is CLASSIC


# --- SQLite: a kill around each statement, and a file that may not grow ---


def copy_store(source: Path, target: Path) -> Path:
    """Copy what a kill leaves."""
    target.mkdir()
    for suffix in ("", "-wal"):
        if (file := source.with_name(source.name + suffix)).exists():
            shutil.copy(file, target / file.name)
    return target / source.name


async def keys_of(path: Path) -> dict[Any, Any]:
    """What a new process loads."""
    owner = await Owner(SqliteOffsetStorage(path)).start()
    try:
        return {key: value for key, value in owner.model.keys.items() if "g" in str(key)}
    finally:
        await owner.storage.close()


@pytest.fixture
def rows_of_several_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rows of conversions have several pages, as those of large groups have."""
    monkeypatch.setattr(packed, "PACKED_FROM_BYTES", 1_000_000)


@pytest.mark.usefixtures("rows_of_several_pages")
@each_conversion
async def test_a_kill_within_a_conversion_leaves_the_group_before_it_or_after_it(
    conversion: Conversion, tmp_path: Path
) -> None:
    spy, images = Spy(), list[Path]()
    path = tmp_path / "store.db"
    storage = SqliteOffsetStorage(path, connect=spy.connect)

    def photograph(sql: str) -> None:
        images.append(copy_store(path, tmp_path / f"image-{len(images)}"))

    async with a_world(storage, Topics(TOPICS), cluster_id=IDENTITY.cluster_id) as world:
        act = await conversion.prepare(world)
        images.append(copy_store(path, tmp_path / "before"))
        before = await keys_of(copy_store(path, tmp_path / "loaded-before"))
        spy.before = spy.after = photograph
        ticket = act(world)
        await world.until(ticket)
        spy.before = spy.after = lambda sql: None
        assert ticket.error is NONE
        images.append(copy_store(path, tmp_path / "after"))
        after = await keys_of(copy_store(path, tmp_path / "loaded-after"))
    assert before != after
    assert len(images) > 3, "at least one statement"
    images += cut_between(tmp_path / "before", tmp_path / "after")
    seen = [await keys_of(image) for image in images]
    assert all(keys in (before, after) for keys in seen)


def cut_between(before: Path, after: Path) -> list[Path]:
    """Cut the log of the later copy after each page that was written since the earlier one."""
    written, whole = [(each / "store.db-wal").read_bytes() for each in (before, after)]
    ends = range(len(written), len(whole), FRAME_BYTES)
    assert whole.startswith(written)
    assert len(ends) > 2, "the conversion is written as several pages"
    images = []
    for number, end in enumerate(ends):
        image = copy_store(after / "store.db", after.with_name(f"cut-{number}"))
        image.with_name("store.db-wal").write_bytes(whole[:end])
        images.append(image)
    return images


class Full(sqlite3.Connection):
    """A database that may not grow while it is said to be full."""

    is_full = False
    _was_full = False

    def execute(self, sql: str, parameters: Iterable[Any] = (), /) -> sqlite3.Cursor:  # type: ignore[override]
        if Full.is_full is not self._was_full:
            self._was_full = Full.is_full
            most = 1 if Full.is_full else 1_000_000  # never less than it has
            super().execute(f"PRAGMA max_page_count = {most}")
        return super().execute(sql, parameters)  # type: ignore[arg-type]


@pytest.mark.usefixtures("rows_of_several_pages")
@pytest.mark.parametrize("conversion", [CONVERSIONS[0], CONVERSIONS[1]], ids=["up", "down"])
async def test_a_store_that_is_full_in_a_conversion_keeps_the_group_and_goes_on_with_room(
    conversion: Conversion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Full, "is_full", False)
    storage = SqliteOffsetStorage(tmp_path / "store.db", connect=connecting(Full))
    async with a_world(storage, Topics(TOPICS)) as world:
        act = await conversion.prepare(world)
        had = await members_of_the_group(world)
        monkeypatch.setattr(Full, "is_full", True)
        refused = act(world)
        beside = world.join(group_instance_id="other", protocols=protocols())
        await world.until(refused, beside)
        assert refused.error is ErrorCode.NOT_COORDINATOR
        monkeypatch.setattr(Full, "is_full", False)
        await world.until_ready()
        assert type_of_the_group(world) is conversion.before
        assert await members_of_the_group(world) == had
        again = act(world)
        await world.until(again)
        assert again.error is NONE
        assert type_of_the_group(world) is conversion.after
