"""Random lives of groups over a host's own store that fails now and then, from one seed each.

What was acknowledged is there, however often a group was forgotten and read again. What was refused
with "try again" may have happened or not, and nothing else ever shows. Half of the worlds have
topics; the offsets of a topic that is not configured stay in the host's store. The store fails with
its own errors, and also cancels its own calls.

``BREAKAGES`` breaks the code on purpose: a world must find it.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable

import pytest

from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.offsets import sweep
from groupkeeper.coordinator.core.requests.admin import DeleteGroup
from groupkeeper.coordinator.core.requests.offsets import OffsetFetch
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.runtime import group_loading
from groupkeeper.storage.backends.host import PersistentOffsetStorage
from groupkeeper.storage.backends.metadata_store import OffsetAndMetadata
from tests.helpers.runtime.coordinator import CLIENT, TOPICS, a_commit, a_config
from tests.helpers.runtime.virtual_loop import VirtualClock, run_virtual, virtual_timer
from tests.helpers.storage.dict_store import ThreadedDictStore
from tests.helpers.storage.faulty_storage import Gate

SEEDS = 40
MOST_TURNS = 200_000
LIVES_S = 3_600
"""All lives end long before this. A request without an answer never ends."""
RETRIABLE = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
NOTHING = -1


class RandomStore(ThreadedDictStore):
    """Slow and unreliable; what it writes now and then outlives the append."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self.dice = dice
        self.is_reliable = False

    async def pause(self, method: str) -> None:
        await asyncio.sleep(self.dice.choice((0, 0, 0.001, 0.02)))
        if not self.is_reliable and self.dice.random() < 0.05:
            if self.dice.random() < 0.4:  # as if the task that opens its connection was cancelled
                raise asyncio.CancelledError
            self.inner.failures[method] = 1

    async def fetch_all(self, group_id: str):
        await self.pause("fetch_all")
        return await super().fetch_all(group_id)

    async def store(self, group_id: str, *rest):
        await self.pause("store")
        self.hold_a_write()
        await super().store(group_id, *rest)

    async def delete(self, group_id: str) -> None:
        await self.pause("delete")
        self.hold_a_write()
        await super().delete(group_id)

    def hold_a_write(self) -> None:
        if not self.is_reliable and self.dice.random() < 0.02:
            self.write_gates.append(gate := Gate())
            asyncio.get_running_loop().call_later(self.dice.choice((4, 6, 12)), gate.open)


class Client:
    """The only one of its group: it knows what may be there."""

    def __init__(self, coordinator: GroupCoordinator, group_id: str, dice: random.Random) -> None:
        self.coordinator = coordinator
        self.group_id = group_id
        self.dice = dice
        self.possible = {NOTHING}
        self.offset = 0
        self.only_reads = False
        self.seen: Counter[ErrorCode] = Counter()

    async def live(self, steps: int) -> None:
        moves = (self.commit, self.commit_again_and_again, self.fetch, self.delete)
        for _ in range(steps):
            await (self.fetch if self.only_reads else self.dice.choice(moves))()
            if self.dice.random() < 0.2:
                self.coordinator.router._routed.clear()
            await asyncio.sleep(self.dice.choice((0, 0.01)))

    async def commit(self) -> None:
        self.offset += 1
        result = await self.coordinator.ask(a_commit(self.group_id, self.offset))
        self.took(result.error, self.offset)

    async def commit_again_and_again(self) -> None:
        """Without waiting for an answer: what was sent last counts, held or not."""
        offsets = range(self.offset + 1, self.offset + 4)
        self.offset += len(offsets)
        asked = [self.coordinator.ask(a_commit(self.group_id, offset)) for offset in offsets]
        for offset, result in zip(offsets, await asyncio.gather(*asked), strict=True):
            self.took(result.error, offset)

    async def delete(self) -> None:
        error = await self.coordinator.ask(DeleteGroup(self.group_id, CLIENT))
        if error is ErrorCode.GROUP_ID_NOT_FOUND:
            assert NOTHING in self.possible
            error = ErrorCode.NONE
        self.took(error, NOTHING)

    async def fetch(self) -> None:
        result = await self.coordinator.ask(OffsetFetch(self.group_id, None, False, False))
        self.seen[result.error] += 1
        if result.error is not ErrorCode.NONE:
            assert result.error in RETRIABLE
            return
        found = result.topics[0][2][0][1] if result.topics else NOTHING
        assert found in self.possible, (self.group_id, found, self.possible)
        self.possible = {found}

    def took(self, error: ErrorCode, value: int) -> None:
        self.seen[error] += 1
        if error is ErrorCode.NONE:
            self.possible = {value}
        else:
            assert error in RETRIABLE
            self.possible.add(value)


async def world(seed: int) -> Counter[ErrorCode]:
    dice = random.Random(seed)
    store = RandomStore(dice)
    storage = PersistentOffsetStorage(store)
    coordinator = GroupCoordinator(
        storage,
        a_config(),
        Topics(TOPICS) if seed % 2 else None,
        clock=VirtualClock(),
        timer=virtual_timer,
    )
    await coordinator.start()
    clients = [Client(coordinator, f"g{number}", dice) for number in range(6)]
    reader = Client(coordinator, "read", dice)
    reader.only_reads, reader.possible = True, {1_000}
    store.inner.store("read", "not-configured", 0, OffsetAndMetadata(1_000))
    clients.append(reader)
    try:
        async with asyncio.timeout(LIVES_S):
            await asyncio.gather(*(client.live(40) for client in clients))
    except TimeoutError:
        raise AssertionError("a group that is not answered") from None
    store.is_reliable = True
    store.inner.failures.clear()
    await asyncio.sleep(60)
    for client in clients:
        before = client.seen[ErrorCode.NONE]
        await client.fetch()
        assert client.seen[ErrorCode.NONE] == before + 1
    await coordinator.stop()
    for client in clients:
        rows = store.inner.groups.get(client.group_id, {})
        kept = rows.get("not-configured" if client is reader else "orders", {}).get(0)
        assert {NOTHING if kept is None else kept.offset} == client.possible, client.group_id
    return sum((client.seen for client in clients), Counter())


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_what_was_acknowledged_is_there(first: int) -> None:
    seen: Counter[ErrorCode] = Counter()
    for seed in range(first, first + 10):
        try:
            seen += run_virtual(world(seed), MOST_TURNS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
    assert seen[ErrorCode.NONE] > 100
    assert all(seen[code] for code in RETRIABLE), "the store was never in the way"


Undo = pytest.MonkeyPatch


def sweeps_what_is_not_configured(patch: Undo) -> None:
    """Delete the offsets of topics that are not configured, although the host stores no topics."""
    patch.setattr(
        sweep, "_is_gone", lambda shard, topic, topic_id: topic not in shard.image.by_name
    )


def believes_every_cancellation(patch: Undo) -> None:
    """End the read of a group that the store has cancelled, as if we had cancelled it."""
    patch.setattr(group_loading, "is_cancelled", lambda: True)


BREAKAGES = {
    sweeps_what_is_not_configured: "('read', -1, {1000})",
    believes_every_cancellation: "a group that is not answered",
}


def some_worlds() -> None:
    for seed in range(10):
        run_virtual(world(seed), MOST_TURNS)


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.__name__)
def test_a_world_finds_what_was_broken_on_purpose(
    breakage: Callable[[Undo], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breakage(monkeypatch)
    with pytest.raises(AssertionError, match=re.escape(BREAKAGES[breakage])):
        some_worlds()
