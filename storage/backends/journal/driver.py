"""The calls that a shared store must offer to ``JournalStorage``.

A *life* is the registration of one process as a user of the store, from its start to its end. At
most one life of a store goes on at a time: a second process is refused. A process *beats* to show
that it is alive: it raises a counter of its life. A life has a *journal* of *entries*, one for each
append. A *fold* writes the present values of the groups and records that changed, and deletes the
entries that these values replace. A *node* is the identity of a process over its restarts; each
node has one event log.

A call that writes names the life of the writer (``life_id``), and is one atomic transaction of the
store. The transaction checks that this life has not ended. If the life has ended, the call raises
LifeOver and stores nothing. Large or many values need several transactions, each with this check:
then a call that is interrupted may have stored a part of them. The same call repeats that part with
the same result. After any error except LifeOver the outcome is unknown, unless a docstring says
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
    """The writer's registration with the store (its life) has ended, so nothing was stored."""


class SeqMoved(StorageError):
    """The last event in the journal does not have the expected sequence number, so nothing was
    stored.
    """


class JournalEnd(NamedTuple):
    """The last event of the log that a node writes. A node is a process over all its restarts."""

    log_id: str | None
    """The id of the log to which the last event belongs; None before the first event."""
    next_seq: int
    ts_ms: int
    """The time of the last append."""


class Begun(NamedTuple):
    """The result of ``begin_life``, which registers a process as a user of the store."""

    others: Sequence[NodeLife]
    """The lives of other processes that have not ended. If there are any, no new life was begun."""
    end: JournalEnd


class OwnedShard(NamedTuple):
    """The owner of a shard, and the last epoch of the shard. The owner is the life of a process, or
    None if the shard is free.
    """

    life_id: str | None
    epoch: LeaseEpoch


class StoreLook(NamedTuple):
    """The state of the store that a process gets with each ``beat``."""

    lives: Sequence[NodeLife]
    """The lives of all processes that have not ended, including our own."""
    owners: Mapping[ShardId, OwnedShard]
    """The owner and the epoch of each shard that was ever acquired."""
    next_seq: int | None = None
    """The sequence number of the next event of our own life. With it, a process notices that the
    store has lost events. None: a store of this kind cannot lose durable events."""


class JournalEntry(NamedTuple):
    """One append, as it is stored in the journal of a process."""

    row: int
    """The number of the entry. The entries of each life are counted from 1."""
    first_seq: int
    event_count: int
    log_id: str
    ts_ms: int
    payload: bytes


class Value(NamedTuple):
    """The saved state of a group, or of a keyed record (a topic, a config or the end of a
    partition).
    """

    shard: ShardId
    is_group: bool
    key: str
    data: bytes | None
    """None means that the value is deleted."""


class LoggedEvent(NamedTuple):
    """An event that is moved from the journal to the event log."""

    log_id: str
    seq: int
    ts_ms: int
    line: EventLine


class Fold(NamedTuple):
    """The changes of one fold: the values and events to write, and the journal entries to
    delete.
    """

    values: Sequence[Value]
    trim_row: int
    """The number of the last entry whose changes are in the values. This entry and all earlier ones
    are deleted."""
    events: Sequence[LoggedEvent]
    """The events of the entries that are deleted. An earlier fold whose outcome is unknown may have
    written some of them. An event with the same log id and seq is the same event, and is written
    once."""


class LogSpan(NamedTuple):
    """The events of one log (``log_id``) that are in the event log of the store: those from
    ``first_seq`` to ``last_seq``. None of them is missing, unless old events are being deleted.
    """

    log_id: str
    previous_log_id: str | None
    """The id of the log that this log continues; None if the first event of the range does not name
    one."""
    first_seq: int
    last_seq: int
    last_ts_ms: int


@runtime_checkable
class HasFigures(Protocol):
    """A driver that adds figures to the ``stats`` of the store."""

    def figures(self) -> Mapping[str, float]:
        """Return figures by name. Called often, so it must not iterate over groups."""
        ...


@runtime_checkable
class HasLeftovers(Protocol):
    """A driver whose interrupted writes may leave something behind that nobody reads."""

    async def leftovers(self) -> Sequence[str]:
        """Return one line for each remainder of an interrupted write or an ended life. No other
        process may use the store during the call.
        """
        ...

    async def remove_leftovers(self, life_id: str) -> None:
        """Remove what ``leftovers`` returns. ``life_id`` is our own life. The caller has already
        folded the journals of ended lives.
        """
        ...


class JournalDriver(Protocol):
    """One shared store. ``beat`` and ``read`` may be called while any other call runs."""

    name: str
    """The URL without secrets, for messages."""
    max_entry_bytes: int
    """The largest payload of an entry."""
    round_trips: Counter[str]
    """The number of messages sent to the store so far, by the name of the call: the statements of
    PostgreSQL, or the requests to ZooKeeper and Consul. A call may send several."""
    keeps_events: bool
    """True: the event log has every event for the whole retention time. False: it has room for few
    events, so they have to be moved into files."""

    async def open(self, identity: StoreIdentity) -> None:
        """Connect to the store, and create the tables or nodes that are missing. Raises
        StoreRefused if the store must not be used, and StoreBusy if it cannot be used at the
        moment.
        """
        ...

    async def open_to_read(self) -> None:
        """Connect to a store without creating or changing anything. Raises StoreRefused if there is
        none.
        """
        ...

    async def close(self) -> None:
        """Disconnect. A second call does nothing."""
        ...

    # --- lives ------------------------------------------------------------------------------------

    async def begin_life(self, life: NodeLife) -> Begun:
        """Register this process as a user of the store. The new life continues the event log of its
        node. If the life of another process has not ended, no life is begun, and the result names
        it.
        """
        ...

    async def lives(self) -> Sequence[NodeLife]:
        """Return the registrations of processes that have not ended."""
        ...

    async def beat(self, life_id: str) -> StoreLook:
        """Show that this process is alive: raise the counter of its life by one. Return the state
        of the store.
        """
        ...

    async def end_life(self, life_id: str, counter: int | None) -> bool:
        """End a life. If ``counter`` is given, end the life only if it has this counter.

        Returns False if the life has another counter, or if it has ended earlier. An append of this
        life is stored before the end of the life, or never.
        """
        ...

    async def ended_lives(self) -> Sequence[str]:
        """Return the ids of the ended lives that still have a journal or own shards."""
        ...

    async def free(self, life_id: str, ended: str) -> None:
        """Free the shards of the life ``ended``, so that other processes can acquire them. The
        journal of that life must be empty. ``life_id`` is our own life.
        """
        ...

    # --- shards -----------------------------------------------------------------------------------

    async def acquire(
        self, life_id: str, shards: Collection[ShardId]
    ) -> Mapping[ShardId, LeaseEpoch]:
        """Acquire the shards that are free, or that already belong to this life. Each gets a higher
        epoch. Return these epochs.
        """
        ...

    async def release(self, life_id: str, shards: Collection[ShardId]) -> None:
        """Free shards of this life, so that other processes can acquire them."""
        ...

    # --- records ----------------------------------------------------------------------------------

    async def append(self, life_id: str, entry: JournalEntry) -> None:
        """Store an entry durably. Raises SeqMoved if the events in the journal do not end just
        before the entry's ``first_seq``.
        """
        ...

    def journal(self, life_id: str) -> AsyncIterator[JournalEntry]:
        """Yield the entries in the journal of a life, in order."""
        ...

    async def fold(self, life_id: str, journal_of: str, fold: Fold) -> None:
        """Write the values and events of a fold, and delete its entries from the journal of the
        life ``journal_of``.

        ``journal_of`` is our own life, or an ended life whose shards are not free yet.
        """
        ...

    def read(self, shards: Collection[ShardId]) -> AsyncIterator[Sequence[Value]]:
        """Yield all saved values of the shards, some of them at a time. Raises StoreRefused if a
        value cannot be read.
        """
        ...

    async def read_groups(self, groups: Collection[tuple[ShardId, str]]) -> Sequence[Value]:
        """Return the saved values of these groups. A group without a value is left out."""
        ...

    # --- events -----------------------------------------------------------------------------------

    async def delete_events(self, life_id: str, before_ms: int) -> None:
        """Delete the events of all whole days before this time. A call may leave some of these
        events for the next call.
        """
        ...

    def history(self, group_id: str, since_ms: int) -> AsyncIterator[EventDict]:
        """Yield the events of a group in the event log, oldest first."""
        ...

    async def event_logs(self) -> Sequence[LogSpan]:
        """Return the logs in the event log, of all nodes, in any order. Events of entries that are
        still in a journal may be missing.
        """
        ...

    async def events(self, log_id: str, after_seq: int) -> Sequence[LoggedEvent]:
        """Return the next events of a log above ``after_seq`` in the event log, in order: some of
        them, or none if there are no more. Call ``event_logs`` first.
        """
        ...

    async def trim_events(self, life_id: str, sealed: Mapping[str, int]) -> int:
        """Delete old events that are in files. Return how many values were deleted; always 0 if
        the store keeps its events.

        ``sealed`` has for each log the last event that is in a file. No event of another log is
        deleted, and never the newest events.
        """
        ...

    async def ends(self) -> Mapping[int, JournalEnd]:
        """Return by node id the end of the log of each node that has used the store. The end stays
        after the events are deleted.
        """
        ...

    async def seal_notes(self) -> Mapping[int, bytes]:
        """Return by node id what each node has recorded about its files of events. The bytes are a
        ``SealNote`` (``journal_rows``).
        """
        ...

    async def write_seal_note(self, life_id: str, node_id: int, note: bytes) -> None:
        """Replace the ``SealNote`` of a node by ``note``. ``life_id`` is our own life."""
        ...
