"""The contract between the coordinator and a storage backend.

A backend stores records and events. It looks only at the keys that a record sets and clears, not at
its values.
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
"""The shard of records that belong to no group: topics, their ids, and configs."""


ROUND_TRIPS: Final = "round_trips."
"""``OffsetStorage.stats`` of a store on a server has keys of this prefix and the name of a call:
the number of requests to the server."""


class StorageError(Exception):
    """A call to a backend failed. The message says what happened and how to repair it."""


class StoreRefused(StorageError):
    """The store must not be used, and an operator has to act. Examples: another coordinator has it
    open, a newer version wrote it, or it has another cluster id or number of shards. A retry does
    not help."""


class StoreBusy(StorageError):
    """The store cannot be used at the moment: its disk is full, or the database is locked. A retry
    may help."""


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
    """True: one append writes all shards of the process. Every backend here does this. False: an
    append writes one shard, so each shard has a lane of its own."""
    fold_after_requests: int = 0
    """An append folds groups only if more requests than this are unfolded. Otherwise the caller
    passes only the shards that write.
    """
    sole_owner: bool = False
    """True: a lock keeps every other writer out while the store is open (SQLite). A fenced append
    then means that the lock was circumvented, and the runtime stops for good. Otherwise two owners
    would acquire the lease in turns, and both would acknowledge requests.
    """
    keeps_topics: bool = True
    """True: the store keeps topics and their ids when the process ends. False: a missing topic may
    exist in Kafka, so its offsets are never deleted.
    """
    max_group_bytes: int | None = None
    """Largest encoded size of the saved state of a group. The core refuses a request that would
    exceed it. None: the backend has no limit of its own."""
    shared: bool = False
    """True: several processes may use the store at the same time, each with shards of its own. The
    runtime then loads some shards while it appends others. It drops only the shards that an append
    names as fenced. The store must accept these calls in any order."""


class Batch(msgspec.Struct, frozen=True):
    """The records and events of one step. They are written together or not at all, in order."""

    records: Sequence[Record]
    events: Sequence[Event]


class ShardAppend(NamedTuple):
    """The part of an append that concerns one shard."""

    shard: ShardId
    fence: LeaseEpoch
    batches: Sequence[Batch]
    """If it is empty, nothing is written for this shard, but its groups may be folded. An append
    folds the oldest groups of all its shards."""
    saved: Callable[[str], SavedGroup | None]
    """Returns the saved state of a group, or None if the group does not exist. The state contains
    exactly the records of this append and of all earlier ones. The backend must call it before the
    append first suspends, never later."""


class Lease(NamedTuple):
    """The right to write a shard. The epoch proves it."""

    shard: ShardId
    owner: str
    epoch: LeaseEpoch


class LeaseStore(Protocol):
    """The leases of shards. A backend with one lane has a single epoch for all shards."""

    async def acquire(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        """Acquire the shards that are free or already ours, each under a new, durable epoch.

        After this call returns, every append with an older epoch is refused, even if it was sent
        before.
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
        """Release everything. A second call does nothing. Any other call after the first raises an
        error.
        """
        ...

    def load(self, shards: Collection[ShardId]) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        """Yield all durable records of the shards, in order within a group.

        A folded group comes first, as one SavedGroup. If it is large, further SavedOffsets follow.
        Later records may repeat changes that these contain. To apply a change again has no effect.

        A backend with one lane is loaded as a whole after every ``acquire``. The runtime appends
        nothing to a lane while the lane is loaded.

        A shared store (``StorageLimits.shared``) is loaded shard by shard. The runtime appends
        other shards at the same time, and nothing for the shards that it loads. If a stored value
        cannot be read, such a store raises StoreRefused. The runtime then loads each of the shards
        by itself, so that only the shard with this value stays LOADING.
        """
        ...

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        """Write records and events durably, in order. After the return they survive a crash.

        Each batch is written whole or not at all. Unless the store is shared, so is each item. A
        shared store may split an append, but keeps the order of the batches of a shard. Returns the
        fenced shards: a newer lease exists for them, and nothing of their items was stored. The
        caller makes one append at a time.

        Raises StorageError, or any exception, if it is unknown whether the items were stored. The
        caller then drops its state, acquires the shards and loads them again. It does the same
        after it cancels an append.
        """
        ...

    def unfolded(self) -> int:
        """Return the number of written requests that are not folded yet; 0 without folds."""
        ...

    def stats(self) -> dict[str, float]:
        """Return numbers for the metrics endpoint: bytes, rows, the last seq. Never blocks."""
        ...

    async def check_after_unclean_end(self) -> str | None:
        """Check the store if its last user did not close it. Return a line that says what is wrong,
        or None.

        The check may take long, and other calls may run at the same time. The runtime starts it
        when all shards are loaded.
        """
        ...


@runtime_checkable
class LoadsGroups(Protocol):
    """Optional part of the contract, for a store that can read a group by its id but cannot list
    its groups.

    ``load`` then yields only the groups that the store can find without an id. After a failed
    append it yields every group loaded so far, except groups whose data is unusable. Any other
    group is read when a request first names it. Requests for this group wait until it is read.
    """

    async def load_group(self, shard: ShardId, group_id: str) -> Sequence[Record]:
        """Return the records of one group, or none if the store has none.

        The runtime calls it when all appends of the group's shard are durable. It may call it for
        several groups at once, and during an append of other shards. Raises StoreRefused if the
        data of the group is unusable: the waiting requests get UNKNOWN_SERVER_ERROR, which clients
        do not retry. After any other exception they get an error that clients retry.
        """
        ...


@runtime_checkable
class LimitsReads(Protocol):
    """Optional part of the contract, for a store whose leases end by themselves after some time.

    Another process may acquire the shards while this process is suspended, or cannot reach the
    store. The store then refuses our writes. But reads do not reach the store, so the runtime must
    stop answering them in time.
    """

    def read_time_left_ms(self) -> int:
        """Return how long loaded shards may still answer reads. 0 means that they must wait until
        the store has confirmed the leases. Cheap: it is called in each turn of the loop.
        """
        ...

    def lost(self, leases: Collection[Lease]) -> Collection[ShardId]:
        """Return the shards whose lease is not ours any more, as far as this process knows.

        If there is read time left, and a lease is not lost, nobody else has owned its shard since
        the lease was acquired.
        """
        ...


@runtime_checkable
class CanBeMoved(Protocol):
    """Optional part of the contract, for a store whose files may be moved, deleted or replaced
    while it is open.
    """

    async def check_place(self) -> None:
        """Raise StoreRefused if a file is no longer the one that was opened.

        After the first failure, every later call raises it too, and every append and acquire is
        refused. The runtime calls it each second.
        """
        ...


@runtime_checkable
class KeepsEvents(Protocol):
    """Optional part of the contract, for a store that can read its own event log."""

    def history(self, group_id: str, since_ms: int = 0) -> AsyncIterator[EventDict]:
        """Yield the durable events of a group from ``since_ms`` on (by ``ts_ms``), oldest first.

        Events that retention has deleted are missing.
        """
        ...
