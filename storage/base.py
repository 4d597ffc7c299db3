"""The contract between the coordinator and a storage backend.

A backend stores records and events. It looks only at the keys that a record sets and clears, not at
its values. Some words of this contract:

- A *shard* has a part of the groups. Every record and event belongs to one shard.
- A *step* is the result of one request or timer: its replies, records and events.
- A *lane* is the queue of appends of some shards. The runtime makes one append of a lane at a time.
- To *fold* a group is to write its whole present state. A load then need not read the group's
  earlier records.
- A *lease* is the right to write a shard. Its *epoch* rises with each acquisition, so a store can
  refuse a late append of an earlier owner.
- The *seq* of an event is its number in the event log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.records import Record, SavedGroup
from groupkeeper.storage.segment_lines import EventDict

ShardId: TypeAlias = int
LeaseEpoch: TypeAlias = int

CLUSTER_SHARD: ShardId = -1
"""The shard of the records that belong to no group: topics, their ids, and configs."""


ROUND_TRIPS: Final = "round_trips."
"""The beginning of some keys in ``OffsetStorage.stats``. A store on a server counts its round trips
to the server by the name of the call. The key is this prefix with the name of the call."""


class StorageError(Exception):
    """A call to a backend failed. The message says what happened and how to repair it."""


class StoreRefused(StorageError):
    """The store must not be used, and an operator has to act. Examples: another coordinator has it
    open, a newer version wrote it, or it has another cluster id or number of shards. A retry does
    not help."""


class StoreGivenUp(StoreRefused):
    """This process must not use the store any more, and has to end. A later start may use it."""


class StoreTaken(StoreGivenUp):
    """Another process has acquired the store while this process used it."""


class StoreBusy(StorageError):
    """The store cannot be used at the moment. Examples: its disk is full, its database is locked,
    or its server does not answer. A retry may help."""


class StoreIdentity(NamedTuple):
    """The values that are fixed when a store is created (docs/design.md#shards)."""

    cluster_id: str
    shards: int


def refuse_other_identity(store: str, found: StoreIdentity, wanted: StoreIdentity) -> None:
    """Raise StoreRefused if the store has another cluster id or number of shards."""
    if found.cluster_id != wanted.cluster_id:
        raise StoreRefused(
            f"{store}: belongs to cluster {found.cluster_id!r}, the config says "
            f"{wanted.cluster_id!r}; the cluster id is fixed when a store is created"
        )
    if found.shards != wanted.shards:
        raise StoreRefused(
            f"{store}: was made with {found.shards} shards, the config says {wanted.shards}; "
            "the number of shards is fixed when a store is created"
        )


class StorageLimits(msgspec.Struct, frozen=True):
    """The limits and properties of a backend. The runtime adapts to them."""

    max_step_bytes: int
    """Largest encoded size of one batch. The core refuses a request that would write more."""
    one_lane: bool
    """True: one append writes all shards of the process, so the process has one queue of appends.
    False: an append writes one shard, and each shard has its own queue. Of the backends here, only
    topics of Kafka do this."""
    fold_after_requests: int = 0
    """Folding begins when more written requests than this are not folded yet, or when no requests
    come for some time. Then the caller passes all shards to an append, and the append also writes
    the present state of some groups. Otherwise the caller passes only the shards that have
    something to write."""
    sole_owner: bool = False
    """True: a lock keeps every other process out while the store is open (SQLite). If such a store
    refuses an append because of a newer lease, a second process has circumvented the lock. The
    runtime then stops, and does not load again. Otherwise the two processes would acquire the lease
    alternately, and both would acknowledge requests."""
    keeps_topics: bool = True
    """True: the store still has the topics and their ids after the process has ended. False: a
    topic that is missing here may exist in Kafka, so its offsets are never deleted."""
    max_group_bytes: int | None = None
    """Largest encoded size of the saved state of a group. The core refuses a request that would
    exceed it. None: the backend has no limit."""
    shared: bool = False
    """True: several processes may use the store at the same time, each with its own shards. (The
    stores here admit only one process at a time.) The runtime then loads some shards while it
    appends to others. It drops only the shards that an append names as fenced. The store must
    accept these calls in any order."""


class Batch(msgspec.Struct, frozen=True):
    """The records and events of one step, which is the result of one request or timer. The store
    writes all of them, in this order, or none.
    """

    records: Sequence[Record]
    events: Sequence[Event]


class ShardAppend(NamedTuple):
    """The part of an append that concerns one shard."""

    shard: ShardId
    fence: LeaseEpoch
    batches: Sequence[Batch]
    """The changes to write. If there are none, the append writes nothing new for this shard. It may
    still fold groups of the shard: an append folds those groups of its shards that changed longest
    ago."""
    saved: Callable[[str], SavedGroup | None]
    """A function that returns the saved state of a group, or None if the group does not exist. This
    state contains exactly the records of this append and of all earlier ones. So the backend must
    call the function before the append first suspends, never later."""


class Lease(NamedTuple):
    """The right to write a shard. Its epoch is a number that rises with each acquisition. With it
    the store recognizes late appends of an earlier owner.
    """

    shard: ShardId
    owner: str
    epoch: LeaseEpoch


class LeaseStore(Protocol):
    """The leases of shards. A backend that writes all shards in one append has a single epoch for
    all its shards.
    """

    async def acquire(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        """Acquire the shards that are free or already ours, each under a new, durable epoch.

        Return their leases. A shard of another owner is left out. After this call returns, every
        append with an older epoch is refused, even if it was sent before.
        """
        ...

    async def renew(self, leases: Collection[Lease]) -> Collection[ShardId]:
        """Renew the leases. Return the shards whose lease was lost."""
        ...

    async def release(self, leases: Collection[Lease]) -> None:
        """Release the leases, so that another owner can acquire the shards."""
        ...


@runtime_checkable
class OffsetStorage(LeaseStore, Protocol):
    """A durable store of groups, offsets and events."""

    limits: StorageLimits

    async def open(self, identity: StoreIdentity) -> None:
        """Open the store, or create it.

        Raises StoreRefused if the store must not be used, and StoreBusy if it cannot be used now.
        """
        ...

    async def close(self) -> None:
        """Close the store, and release its leases and locks. A second call does nothing. After the
        first call, any other call raises an error.
        """
        ...

    def load(self, shards: Collection[ShardId]) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        """Yield all durable records of the shards. The records of each group are in order.

        If a group was folded, its state comes first, as one SavedGroup. If the group is large,
        further SavedOffsets follow. The later records may repeat changes that this state already
        contains. To apply a change twice has the same result as to apply it once.

        After every ``acquire`` the runtime loads the shards before it appends to them. If the store
        is not shared (``StorageLimits.shared``), the runtime loads all shards of a lane together,
        and appends nothing to the lane during the load.

        If the store is shared, the runtime may load some shards and append to others at the same
        time. If such a store cannot read a stored value, it raises StoreRefused. The runtime then
        loads each of the shards alone, so that only the shard with this value stays LOADING.
        """
        ...

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        """Write records and events durably, in order. After this call has returned, they survive a
        crash.

        Each batch is written whole or not at all. Each item is too, unless the store is shared. A
        shared store may split an append, but keeps the order of the batches of a shard. The caller
        makes one append at a time.

        Returns the fenced shards. For these a newer lease exists, and nothing of their items was
        stored.

        Raises StorageError, or another exception, if it is unknown whether the items were stored.
        The caller then drops its state, acquires the shards and loads them again. The caller does
        the same after it has cancelled an append.
        """
        ...

    def unfolded(self) -> int:
        """Return how many written requests are not yet part of a folded state; 0 if the store does
        not fold.
        """
        ...

    def stats(self) -> dict[str, float]:
        """Return numbers for the metrics endpoint: the size in bytes, the number of rows, the
        number of the last event (seq). Never blocks.
        """
        ...

    async def check_after_unclean_end(self) -> str | None:
        """Check the store if the process that used it last did not close it. Return a line that
        says what is wrong with the store, or None.

        The check may take long, and other calls may run at the same time. The daemon starts the
        check when it is ready. A coordinator in another program does not start it.
        """
        ...


def check_storage(storage: object) -> None:
    """Raise TypeError if the argument is not an OffsetStorage, or if it is a class instead of an
    object.
    """
    if not isinstance(storage, OffsetStorage) or isinstance(storage, type):
        raise TypeError(
            "storage must be an OffsetStorage, such as SqliteOffsetStorage(path) or "
            f"PersistentOffsetStorage(your_store), not {storage!r}"
        )


@runtime_checkable
class LoadsGroups(Protocol):
    """Optional part of the contract, for a store that can read a group by its id but cannot list
    its groups.

    The ``load`` of such a store yields only the groups that the store can find without an id. After
    a failed append, these are the groups that were loaded before. Groups that cannot be read in
    time, and groups whose data is unusable, are left out. The runtime reads any other group when a
    request first names it. Requests for this group wait until then.
    """

    async def load_group(self, shard: ShardId, group_id: str) -> Sequence[Record]:
        """Return the records of one group; an empty sequence if the store has none.

        The runtime calls this when all appends of the group's shard are durable. It may call this
        for several groups at once, and during an append of other shards.

        Raises StoreRefused if the data of the group is unusable. The waiting requests then get
        UNKNOWN_SERVER_ERROR, which clients do not retry. After any other exception they get an
        error that clients retry.
        """
        ...


@runtime_checkable
class LimitsReads(Protocol):
    """Optional part of the contract, for a store whose leases end by themselves after some time.

    Another process may acquire the shards while this process is suspended, or cannot reach the
    store. The store then refuses the writes of this process. But the runtime answers reads from
    memory, without the store. So it must stop answering them in time.
    """

    def read_time_left_ms(self) -> int:
        """Return for how many milliseconds loaded shards may still answer reads. 0 means that reads
        must wait until the store has confirmed the leases. This must be cheap, because the runtime
        calls it in each iteration of the event loop.
        """
        ...

    def lost(self, leases: Collection[Lease]) -> Collection[ShardId]:
        """Return the shards whose lease this process has lost, as far as the process knows.

        The other leases are certain only while ``read_time_left_ms`` is above 0. Then no other
        process has owned such a shard since its lease was acquired.
        """
        ...


@runtime_checkable
class TimesFolds(Protocol):
    """Optional part of the contract, for a store that itself knows when a fold is due.

    The runtime then does not look for folds that are due, except at a stop. An append with changes
    may fold too, so the store asks only while no such append comes.
    """

    def on_fold_due(self, call: Callable[[], None]) -> None:
        """Let the store call ``call`` on the event loop when a fold is due.

        The runtime then makes an append of all loaded shards without changes. If it cannot do so
        now, it does nothing, and the store has to ask again.
        """
        ...


@runtime_checkable
class CanBeMoved(Protocol):
    """Optional part of the contract, for a store whose files may be moved, deleted or replaced
    while it is open.
    """

    async def check_place(self) -> None:
        """Raise StoreRefused if a file of the store is no longer the one that was opened, and its
        subclass StoreTaken if another process has acquired the store.

        After the first failure every later call raises StoreRefused too, and the store refuses
        every append and acquire. The runtime calls this each second, while all shards are loaded.
        If the error is StoreGivenUp, the runtime stops.
        """
        ...


@runtime_checkable
class KeepsEvents(Protocol):
    """Optional part of the contract, for a store that can read its own event log."""

    def history(self, group_id: str, since_ms: int = 0) -> AsyncIterator[EventDict]:
        """Yield the durable events of a group, oldest first, from the time ``since_ms`` on
        (compared with ``ts_ms`` of the event).

        Events that retention has deleted are missing.
        """
        ...
