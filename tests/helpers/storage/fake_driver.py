"""A shared store in memory, for ``JournalStorage``: a server, and connections to it.

``pause`` is awaited before and after the transaction of each call, so that a test can hold it, fail
it, or let other calls run in between. The transaction itself does not suspend.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from groupkeeper.storage.backends.journal.driver import (
    Begun,
    Fold,
    JournalEnd,
    JournalEntry,
    LifeOver,
    LoggedEvent,
    LogSpan,
    OwnedShard,
    SeqMoved,
    StoreLook,
    Value,
)
from groupkeeper.storage.base import (
    LeaseEpoch,
    ShardId,
    StorageError,
    StoreIdentity,
    StoreRefused,
    refuse_other_identity,
)
from groupkeeper.storage.codec.records import decode_payload, payload_events
from groupkeeper.storage.leases.lives import NodeLife
from groupkeeper.storage.segment_lines import EventDict, decode_line, encode_line

Pause = Callable[[str, bool], Awaitable[None]]
"""A function of (name of the call, True if its transaction is done)."""


async def no_pause(call: str, is_done: bool) -> None:
    """Wait for one turn of the loop."""
    await asyncio.sleep(0)


@dataclass
class StoredLife:
    life: NodeLife
    end: JournalEnd
    is_over: bool = False
    is_freed: bool = False
    entries: list[JournalEntry] = field(default_factory=list)


class FakeServer:
    """The data of the store. It outlives all connections."""

    def __init__(self) -> None:
        self.identity: StoreIdentity | None = None
        self.lives: dict[str, StoredLife] = {}
        self.owners: dict[ShardId, OwnedShard] = {}
        self.values: dict[tuple[ShardId, bool, str], bytes] = {}
        self.event_log: list[EventDict] = []
        self.seal_notes: dict[int, bytes] = {}
        self.leftovers: list[str] = []
        """The leftovers that ``DriverWithLeftovers`` finds and removes."""
        self.appended: Callable[[JournalEntry], None] = lambda entry: None
        """Called for each entry in the transaction that stores it."""
        self.acquired: Callable[[ShardId, LeaseEpoch], None] = lambda shard, epoch: None

    def events(self) -> list[EventDict]:
        """Return all events, in the log and in journals."""
        events = [*self.event_log]
        for stored in self.lives.values():
            for entry in stored.entries:
                events += payload_events(entry.first_seq, decode_payload(entry.payload))
        return events

    def going_on(self) -> list[NodeLife]:
        return [stored.life for stored in self.lives.values() if not stored.is_over]

    def check(self, life_id: str) -> StoredLife:
        """Return a running life. Raises LifeOver if it has ended."""
        stored = self.lives.get(life_id)
        if stored is None or stored.is_over:
            raise LifeOver(f"fake: life {life_id} has ended")
        return stored


class FakeDriver:
    """One connection to a server."""

    name = "fake:"
    max_entry_bytes = 32 * 1024 * 1024
    keeps_events = False

    def __init__(self, server: FakeServer, pause: Pause = no_pause) -> None:
        self.server = server
        self.pause = pause
        self.round_trips: Counter[str] = Counter()
        self._is_open = False

    async def _call(self, name: str, work: Callable[[], object]) -> object:
        self.round_trips[name] += 1
        await self.pause(name, False)
        if not self._is_open:
            raise StorageError("fake: is not connected")
        result = work()
        await self.pause(name, True)
        return result

    async def open(self, identity: StoreIdentity) -> None:
        if self.server.identity is not None:
            refuse_other_identity(self.name, self.server.identity, identity)
        self.server.identity = identity
        self._is_open = True

    async def open_to_read(self) -> None:
        if self.server.identity is None:
            raise StoreRefused("fake: there is no store")
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    async def begin_life(self, life: NodeLife) -> Begun:
        def begin() -> Begun:
            ends = [each.end for each in self.server.lives.values() if each.life[0] == life.node_id]
            end = ends[-1] if ends else JournalEnd(None, 1, 0)
            others = self.server.going_on()
            if not others:
                self.server.lives[life.life_id] = StoredLife(life, end)
            return Begun(others, end)

        return await self._call("begin_life", begin)  # type: ignore[return-value]

    async def lives(self) -> Sequence[NodeLife]:
        return await self._call("lives", self.server.going_on)  # type: ignore[return-value]

    async def beat(self, life_id: str) -> StoreLook:
        def beat() -> StoreLook:
            stored = self.server.check(life_id)
            stored.life = stored.life._replace(counter=stored.life.counter + 1)
            next_seq = stored.end.next_seq
            return StoreLook(self.server.going_on(), dict(self.server.owners), next_seq)

        return await self._call("beat", beat)  # type: ignore[return-value]

    async def end_life(self, life_id: str, counter: int | None) -> bool:
        def end() -> bool:
            stored = self.server.lives.get(life_id)
            if stored is None or stored.is_over or counter not in (None, stored.life.counter):
                return False
            stored.is_over = True
            return True

        return await self._call("end_life", end)  # type: ignore[return-value]

    async def ended_lives(self) -> Sequence[str]:
        def ended() -> Sequence[str]:
            lives = self.server.lives.items()
            return [key for key, each in lives if each.is_over and not each.is_freed]

        return await self._call("ended_lives", ended)  # type: ignore[return-value]

    async def free(self, life_id: str, ended: str) -> None:
        def free() -> None:
            self.server.check(life_id)
            stored = self.server.lives[ended]
            assert stored.is_over
            assert not stored.entries, "its journal is not folded"
            stored.is_freed = True
            self._free(ended, [*self.server.owners])

        await self._call("free", free)

    def _free(self, life_id: str, shards: Collection[ShardId]) -> None:
        for shard in shards:
            owner = self.server.owners[shard]
            if owner.life_id == life_id:
                self.server.owners[shard] = owner._replace(life_id=None)

    async def acquire(
        self, life_id: str, shards: Collection[ShardId]
    ) -> Mapping[ShardId, LeaseEpoch]:
        def acquire() -> Mapping[ShardId, LeaseEpoch]:
            self.server.check(life_id)
            epochs = {}
            for shard in shards:
                owner = self.server.owners.get(shard, OwnedShard(None, 0))
                if owner.life_id in (None, life_id):
                    epochs[shard] = owner.epoch + 1
                    self.server.owners[shard] = OwnedShard(life_id, epochs[shard])
                    self.server.acquired(shard, epochs[shard])
            return epochs

        return await self._call("acquire", acquire)  # type: ignore[return-value]

    async def release(self, life_id: str, shards: Collection[ShardId]) -> None:
        def release() -> None:
            self.server.check(life_id)
            self._free(life_id, shards)

        await self._call("release", release)

    async def append(self, life_id: str, entry: JournalEntry) -> None:
        def append() -> None:
            stored = self.server.check(life_id)
            if stored.end.next_seq != entry.first_seq:
                raise SeqMoved(f"fake: the journal ends with seq {stored.end.next_seq - 1}")
            stored.entries.append(entry)
            next_seq = entry.first_seq + entry.event_count
            stored.end = JournalEnd(entry.log_id, next_seq, entry.ts_ms)
            self.server.appended(entry)

        await self._call("append", append)

    async def journal(self, life_id: str) -> AsyncIterator[JournalEntry]:
        await self.pause("journal", False)
        for entry in [*self.server.lives[life_id].entries]:
            yield entry
            await asyncio.sleep(0)

    async def fold(self, life_id: str, journal_of: str, fold: Fold) -> None:
        def write() -> None:
            self.server.check(life_id)
            source = self.server.lives[journal_of]
            if source.is_freed:
                raise LifeOver("fake: the shards are free already")
            for value in fold.values:
                key = value.shard, value.is_group, value.key
                if value.data is None:
                    self.server.values.pop(key, None)
                else:
                    self.server.values[key] = value.data
            source.entries = [each for each in source.entries if each.row > fold.trim_row]
            there = {(event["log_id"], event["seq"]) for event in self.server.event_log}
            self.server.event_log += [
                decode_line(event.line[1])
                for event in fold.events
                if (event.log_id, event.seq) not in there
            ]

        await self._call("fold", write)

    async def read(self, shards: Collection[ShardId]) -> AsyncIterator[Sequence[Value]]:
        await self.pause("read", False)
        wanted = frozenset(shards)
        found = [Value(*key, data) for key, data in self.server.values.items() if key[0] in wanted]
        for value in found:
            yield [value]
            await asyncio.sleep(0)

    async def read_groups(self, groups: Collection[tuple[ShardId, str]]) -> Sequence[Value]:
        def read() -> Sequence[Value]:
            values = self.server.values
            keys = [(shard, True, name) for shard, name in groups]
            return [Value(*key, values[key]) for key in keys if key in values]

        return await self._call("read_groups", read)  # type: ignore[return-value]

    async def delete_events(self, life_id: str, before_ms: int) -> None:
        def delete() -> None:
            self.server.check(life_id)
            log = self.server.event_log
            self.server.event_log = [event for event in log if event["ts_ms"] >= before_ms]

        await self._call("delete_events", delete)

    async def history(self, group_id: str, since_ms: int) -> AsyncIterator[EventDict]:
        for event in self.server.event_log:
            if event["group"] == group_id and event["ts_ms"] >= since_ms:
                yield event

    async def event_logs(self) -> Sequence[LogSpan]:
        def look() -> Sequence[LogSpan]:
            logs: dict[str, list[EventDict]] = {}
            for event in self.server.event_log:
                logs.setdefault(event["log_id"], []).append(event)
            return [
                LogSpan(
                    log_id,
                    events[0].get("previous_log_id"),
                    events[0]["seq"],
                    events[-1]["seq"],
                    events[-1]["ts_ms"],
                )
                for log_id, events in logs.items()
            ]

        return await self._call("event_logs", look)  # type: ignore[return-value]

    async def events(self, log_id: str, after_seq: int) -> Sequence[LoggedEvent]:
        def read() -> Sequence[LoggedEvent]:
            return [
                LoggedEvent(log_id, each["seq"], each["ts_ms"], (each["group"], encode_line(each)))
                for each in self.server.event_log
                if each["log_id"] == log_id and each["seq"] > after_seq
            ][:2]

        return await self._call("events", read)  # type: ignore[return-value]

    async def trim_events(self, life_id: str, sealed: Mapping[str, int]) -> int:
        def trim() -> int:
            self.server.check(life_id)
            log = self.server.event_log
            kept = [each for each in log if each["seq"] > sealed.get(each["log_id"], 0)]
            self.server.event_log = kept or log[-1:]
            return len(log) - len(self.server.event_log)

        return await self._call("trim_events", trim)  # type: ignore[return-value]

    async def ends(self) -> Mapping[int, JournalEnd]:
        return {each.life.node_id: each.end for each in self.server.lives.values()}

    async def seal_notes(self) -> Mapping[int, bytes]:
        return dict(self.server.seal_notes)

    async def write_seal_note(self, life_id: str, node_id: int, note: bytes) -> None:
        def write() -> None:
            self.server.check(life_id)
            self.server.seal_notes[node_id] = note

        await self._call("write_seal_note", write)


class DriverWithLeftovers(FakeDriver):
    """Removes leftovers only while its life has not ended and no journal has entries."""

    async def leftovers(self) -> list[str]:
        return [*self.server.leftovers]

    async def remove_leftovers(self, life_id: str) -> None:
        self.server.check(life_id)
        assert not [each for each in self.server.lives.values() if each.entries]
        self.server.leftovers.clear()
