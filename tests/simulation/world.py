"""A world from one seed: a coordinator, a store that misbehaves, clients, kills. All in virtual
time.

Checked at every answer: it is the only one; what was acknowledged is durable; a read shows what was
acknowledged before it was asked; the invariants of the shard. At the end: everything asked was
answered, every group is Stable again with its partitions shared out, and the log tells the same
story as the state.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

from coordinator.core.errors import ErrorCode
from coordinator.core.invariants import check
from coordinator.core.requests import Client, OffsetCommit, OffsetFetch, Request
from coordinator.core.routing import shard_of
from coordinator.core.shard import Shard
from coordinator.runtime.settings import CoordinatorConfig
from coordinator.service import GroupCoordinator
from coordinator.topics import ConfiguredTopic, Topics
from storage.memory import MemoryOffsetStorage
from tests.helpers.virtual_loop import VirtualClock, virtual_timer
from tests.simulation.store import DurableModel, SimStore

SHARDS = 4
PARTITIONS = 6
TOPIC = "orders"


class Disconnected(Exception):
    """The process died before it answered."""


class Call:
    """A request of a client, and its one answer."""

    def __init__(self, world: World, request: Request) -> None:
        self.request = request
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.is_cut = False
        self.is_answered = False
        self.acked_before = dict(world.acked) if isinstance(request, OffsetFetch) else {}
        self._world = world

    def resolve(self, result: Any) -> None:
        if self.is_cut:
            return  # said into a connection that is gone
        assert not self.is_answered, f"answered twice: {self.request}"
        self.is_answered = True
        self._world.answered(self, result)
        if not self.future.done():  # the client may have gone
            self.future.set_result(result)

    def cut(self) -> None:
        """The connection went with the process."""
        self.is_cut = True
        if not self.future.done():
            self.future.set_exception(Disconnected())


class World:
    """Everything that one seed makes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._clock = VirtualClock()
        self.model = DurableModel()
        self.inner = MemoryOffsetStorage(clock=self._wall_ms)
        self.acked: dict[tuple[str, str, int], int] = {}
        self.answers: Counter[str] = Counter()
        self.is_over = False
        self._calls: set[Call] = set()
        self._last_offset = 0
        self._minted = 0
        self._ended: list[asyncio.Task[None]] = []
        self._config = CoordinatorConfig(
            initial_rebalance_delay_ms=self.random.choice((0, 300, 3_000)),
            shards=SHARDS,
            append_timeout_ms=self.random.choice((500, 2_000)),
        )
        self.store: SimStore
        self.coordinator: GroupCoordinator

    def _wall_ms(self) -> int:
        return self._clock.now().wall_ms

    # --- The process ------------------------------------------------------------------------------

    async def start(self, trouble: float = 0.0) -> None:
        """Begin a life; returns when it serves."""
        self.store = SimStore(self.inner, self.random, self.model)
        self.store.trouble = trouble
        self.coordinator = GroupCoordinator(
            self.store,
            self._config,
            Topics([ConfiguredTopic(TOPIC, PARTITIONS)], self.mint_topic_id),
            clock=self._clock,
            timer=virtual_timer,
        )
        await self.coordinator.start()

    async def kill(self) -> None:
        """End a life with whatever was under way."""
        await self.store.kill()
        calls, self._calls = self._calls, set()
        for call in calls:
            call.cut()
        # Nothing of it can do harm any more; this only ends its tasks.
        self._ended.append(asyncio.ensure_future(self.coordinator.stop(10)))

    async def stop(self) -> None:
        """End the world: a clean stop answers everything."""
        self.is_over = True
        await self.coordinator.stop()
        await asyncio.gather(*self._ended)
        assert not self._calls, f"never answered: {[call.request for call in self._calls]}"

    # --- What clients do --------------------------------------------------------------------------

    async def ask(self, request: Request) -> Any:
        """Send a request and wait for its answer."""
        call = Call(self, request)
        self._calls.add(call)
        self.coordinator.submit(request, call)
        self.check_shard(getattr(request, "group_id", ""))
        return await call.future

    def next_offset(self) -> int:
        """Return an offset larger than all before: what is stored for a key only ever grows."""
        self._last_offset += 1
        return self._last_offset

    def mint(self, prefix: str) -> str:
        """Return a new id."""
        self._minted += 1
        return f"{prefix}-{self._minted}"

    def mint_topic_id(self) -> str:
        return self.mint("topic").ljust(22, "A")

    def client(self, name: str) -> Client:
        return Client(name, "/10.0.0.1")

    # --- What must hold ---------------------------------------------------------------------------

    def answered(self, call: Call, result: Any) -> None:
        """Check an answer at the moment it is given."""
        self._calls.discard(call)
        code = result if isinstance(result, ErrorCode) else result.error
        self.answers[f"{type(call.request).__name__} {code.name}"] += 1
        assert code is not ErrorCode.UNKNOWN_SERVER_ERROR, call.request
        request = call.request
        if isinstance(request, OffsetCommit) and code is ErrorCode.NONE and not result.topics:
            for name, _, partitions in request.topics:
                for partition, offset, *_ in partitions:
                    key = (request.group_id, name, partition)
                    durable = self.model.offsets.get(key, -1)
                    assert durable >= offset, f"{key}: {offset} acknowledged, {durable} durable"
                    self.acked[key] = max(offset, self.acked.get(key, -1))
        elif isinstance(request, OffsetFetch) and code is ErrorCode.NONE:
            shown = {(name, p[0]): p[1] for name, _, parts in result.topics for p in parts}
            for (group_id, name, partition), offset in call.acked_before.items():
                if group_id == request.group_id:
                    assert shown.get((name, partition), -1) >= offset, (group_id, name, partition)

    def check_shard(self, group_id: str) -> None:
        """Check the invariants of a group's shard, if it is not loading."""
        shard = self.coordinator._owner.slots[shard_of(group_id, SHARDS)].shard
        if isinstance(shard, Shard):
            check(shard)

    async def check_end(self) -> None:
        """Nothing is under way: the state, the store and the log must agree."""
        for key, offset in self.acked.items():
            assert self.model.offsets[key] >= offset, key
        for shard_id, slot in self.coordinator._owner.slots.items():
            if isinstance(slot.shard, Shard):
                live = {group.group_id: group for group in slot.shard.saved_groups()}
                again = Shard(shard_id, self._config, slot.shard.image)
                async for _, records in self.inner.load([shard_id]):
                    for record in records:
                        again.apply(record)
                assert {g.group_id: g for g in again.saved_groups()} == live
        self._check_log()

    def _check_log(self) -> None:
        events = self.inner.events()
        assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
        times = [e["ts_ms"] for e in events]
        assert times == sorted(times)
        last: dict[tuple[str, str, int], int] = {}
        for event in events:
            if event["kind"] == "commit":
                for topic in event["topics"]:
                    for p in topic["partitions"]:
                        key = (event["group"], topic["topic"], p["partition"])
                        assert p["previous_offset"] == last.get(key, -1), (key, event["seq"])
                        last[key] = p["offset"]
        assert last == self.model.offsets
