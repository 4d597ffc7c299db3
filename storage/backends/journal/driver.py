"""The calls that a shared store must offer to ``JournalStorage``.

Each call is one atomic transaction of the store. A call that writes names the life of the writer,
and the same transaction checks that this life has not ended. If it has ended, the call raises
LifeOver and stores nothing. After any other error the outcome is unknown, unless a docstring says
otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from groupkeeper.storage.base import LeaseEpoch, ShardId, StorageError, StoreIdentity
from groupkeeper.storage.leases.lives import NodeLife
from groupkeeper.storage.segment_lines import EventDict, EventLine


class LifeOver(StorageError):
    """The life of the writer has ended, so nothing was stored."""


class SeqMoved(StorageError):
    """The journal does not end at the expected seq, so nothing was stored."""


class JournalEnd(NamedTuple):
    """The end of the log of a node."""

    log_id: str | None
    """The log of its last event; None before the first event."""
    next_seq: int
    ts_ms: int
    """The time of its last append."""


class Begun(NamedTuple):
    """The result of ``begin_life``."""

    others: Sequence[NodeLife]
    """The other lives that have not ended. If there are any, no life was begun."""
    end: JournalEnd


class OwnedShard(NamedTuple):
    """The life that owns a shard (None if the shard is free), and the shard's last epoch."""

    life_id: str | None
    epoch: LeaseEpoch


class StoreLook(NamedTuple):
    """The state of the store that a beat returns."""

    lives: Sequence[NodeLife]
    """All lives that have not ended, including our own."""
    owners: Mapping[ShardId, OwnedShard]
    next_seq: int | None = None
    """The next seq of our own life. None: the store cannot lose what is durable."""


class JournalEntry(NamedTuple):
    """One append in the journal of a life."""

    row: int
    """The number of the entry. It counts from 1 in each life."""
    first_seq: int
    event_count: int
    log_id: str
    ts_ms: int
    payload: bytes


class Value(NamedTuple):
    """The folded value of a group, or of a keyed record (a topic, a config or an end)."""

    shard: ShardId
    is_group: bool
    key: str
    data: bytes | None
    """None means that the value is deleted."""


class LoggedEvent(NamedTuple):
    """An event that a fold moves from the journal to the event log."""

    log_id: str
    seq: int
    ts_ms: int
    line: EventLine


class Fold(NamedTuple):
    """The values and events that one fold writes, and the entries that it deletes."""

    values: Sequence[Value]
    trim_row: int
    """The last entry of the journal that is folded. This entry and all earlier ones are deleted."""
    events: Sequence[LoggedEvent]
    """The events of these entries. An earlier fold whose outcome is unknown may have written some
    of them. An event with the same log id and seq is the same event, and is written once."""


@runtime_checkable
class HasFigures(Protocol):
    """A driver with figures of its own for ``stats`` of the store."""

    def figures(self) -> Mapping[str, float]:
        """Return figures by name. Called often, so it must not iterate over groups."""
        ...


@runtime_checkable
class HasLeftovers(Protocol):
    """A driver whose interrupted writes may leave something behind that nobody reads."""

    async def leftovers(self) -> Sequence[str]:
        """Return what is left behind, a line each. No life may go on meanwhile but our own."""
        ...

    async def remove_leftovers(self, life_id: str) -> None:
        """Remove all of it under our own life. The journals of ended lives are folded."""
        ...


class JournalDriver(Protocol):
    """One shared store. ``beat`` and ``read`` may be called while any other call runs."""

    name: str
    """The URL without secrets, for messages."""
    max_entry_bytes: int
    """The largest payload of an entry."""
    round_trips: Counter[str]
    """What was sent to the store so far, by the name of the call: the statements of PostgreSQL, or
    the calls of ZooKeeper."""

    async def open(self, identity: StoreIdentity) -> None:
        """Connect, and create what is missing. Raises StoreRefused or StoreBusy."""
        ...

    async def close(self) -> None:
        """Disconnect. A second call does nothing."""
        ...

    # --- lives ------------------------------------------------------------------------------------

    async def begin_life(self, life: NodeLife) -> Begun:
        """Begin a life that continues the log of its node. If another life has not ended, none is
        begun.
        """
        ...

    async def lives(self) -> Sequence[NodeLife]:
        """Return the lives that have not ended."""
        ...

    async def beat(self, life_id: str) -> StoreLook:
        """Raise the counter of a life by one. Return the state of the store."""
        ...

    async def end_life(self, life_id: str, counter: int | None) -> bool:
        """End a life. If ``counter`` is given, end it only if the life has this counter.

        Returns False if the life has another counter, or ended earlier. An append of this life is
        stored before its end, or never.
        """
        ...

    async def ended_lives(self) -> Sequence[str]:
        """Return the ended lives that still have a journal or own shards."""
        ...

    async def free(self, life_id: str, ended: str) -> None:
        """Free the shards of an ended life. Its journal must be empty."""
        ...

    # --- shards -----------------------------------------------------------------------------------

    async def acquire(
        self, life_id: str, shards: Collection[ShardId]
    ) -> Mapping[ShardId, LeaseEpoch]:
        """Acquire those of the shards that are free or our own. Each gets a higher epoch."""
        ...

    async def release(self, life_id: str, shards: Collection[ShardId]) -> None:
        """Free our own shards."""
        ...

    # --- records ----------------------------------------------------------------------------------

    async def append(self, life_id: str, entry: JournalEntry) -> None:
        """Store an entry durably. Raises SeqMoved if its ``first_seq`` is not the expected one."""
        ...

    def journal(self, life_id: str) -> AsyncIterator[JournalEntry]:
        """Yield the entries of a life, in order."""
        ...

    async def fold(self, life_id: str, journal_of: str, fold: Fold) -> None:
        """Write values and events, and delete entries from the journal of ``journal_of``.

        ``journal_of`` is our own life, or an ended one whose shards are not free yet.
        """
        ...

    def read(self, shards: Collection[ShardId]) -> AsyncIterator[Sequence[Value]]:
        """Yield all folded values of the shards, in portions. Raises StoreRefused if a value cannot
        be read.
        """
        ...

    async def read_groups(self, groups: Collection[tuple[ShardId, str]]) -> Sequence[Value]:
        """Return the folded values of these groups. The result has no entry for a group without a
        value.
        """
        ...

    # --- events -----------------------------------------------------------------------------------

    async def delete_events(self, life_id: str, before_ms: int) -> None:
        """Delete the events of all whole days before this time."""
        ...

    def history(self, group_id: str, since_ms: int) -> AsyncIterator[EventDict]:
        """Yield the events of a group in the event log, oldest first."""
        ...
