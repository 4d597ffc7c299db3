"""The seam for third parties: what a backend promises, and what it is given.

A backend keeps records and events; it interprets neither, beyond the keys that records set and
clear.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from groupkeeper.coordinator.core.events import Event
from groupkeeper.coordinator.core.records import Record, SavedGroup
from groupkeeper.storage.segment_lines import EventDict

ShardId: TypeAlias = int
LeaseEpoch: TypeAlias = int

CLUSTER_SHARD: ShardId = -1
"""Holds what belongs to no group: topics and their ids."""


class StorageError(Exception):
    """A backend could not do what it was asked to; the message says what happened, what to do."""


class StoreRefused(StorageError):
    """The store must not be used as it is: in use by another process, written by a newer version,
    made with another cluster id or number of shards. Retrying does not help; a person has to act.
    """


class StoreBusy(StorageError):
    """The store cannot be used at this moment: its disk is full, or somebody else holds it. That
    goes by without us, so trying again helps.
    """


class StoreIdentity(NamedTuple):
    """What is fixed when a store is created (docs/design.md#shards)."""

    cluster_id: str
    shards: int


def refuse_other_identity(store: str, found: StoreIdentity, wanted: StoreIdentity) -> None:
    """Raise StoreRefused, in one line, for a store of another cluster or number of shards."""
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
    """What a backend can take."""

    max_step_bytes: int
    """Encoded size that one step (one batch) may have; the core refuses what would be larger."""
    one_lane: bool
    """True: all shards of a process are written in one transaction (memory, SQLite, PostgreSQL).
    False: one shard at a time (ZooKeeper, Consul, Kafka), each shard a lane of its own."""
    fold_after_requests: int = 0
    """With no more unfolded requests than this an append folds nothing besides: then only shards
    that write are given to it."""
    sole_owner: bool = False
    """True: a lock lets nobody else write while the store is open (SQLite), so an append that is
    fenced means that somebody does in spite of it. The runtime then stops for good: two owners who
    took the lease from each other in turns would both acknowledge."""
    keeps_topics: bool = True
    """The store outlives the process with its topics and their ids. False: what a topic that is
    missing had may belong to somebody who named it before, so offsets are never deleted with it."""
    max_group_bytes: int | None = None
    """Encoded size that the saved state of a group may have; the core refuses what would make it
    larger. None: the backend has no limit of its own."""


class Batch(msgspec.Struct, frozen=True):
    """What storage sees of one Step: atomic, in order."""

    records: Sequence[Record]
    events: Sequence[Event]


class ShardAppend(NamedTuple):
    """What one shard has to write in one append."""

    shard: ShardId
    fence: LeaseEpoch
    batches: Sequence[Batch]
    """May be empty: such an item writes nothing and offers its shard to the fold, which takes the
    oldest groups among the shards of the append. An append of such items alone only folds."""
    saved: Callable[[str], SavedGroup | None]
    """group id -> its saved state now, which holds exactly what this and earlier appends hold; None
    when the group is gone. To be called before the append first suspends, never later."""


class Lease(NamedTuple):
    """The right to write a shard, and the number that proves it."""

    shard: ShardId
    owner: str
    epoch: LeaseEpoch


class LeaseStore(Protocol):
    """Who owns which shard. A backend with one lane has one epoch for all shards."""

    async def acquire(self, shards: Collection[ShardId], owner: str) -> dict[ShardId, Lease]:
        """Take the shards that are free or ours, each under a new epoch written durably.

        After return, an append with an older epoch is refused, however late it arrives.
        """
        ...

    async def renew(self, leases: Collection[Lease]) -> Collection[ShardId]:
        """Keep the leases alive; return the shards that were lost."""
        ...

    async def release(self, leases: Collection[Lease]) -> None:
        """Give the shards back."""
        ...


@runtime_checkable
class OffsetStorage(LeaseStore, Protocol):
    """Durable home of groups, offsets and events."""

    limits: StorageLimits

    async def open(self, identity: StoreIdentity) -> None:
        """Open or create the store. Raises StoreRefused where it must not be used."""
        ...

    async def close(self) -> None:
        """Release everything; further calls are an error. Safe to call twice."""
        ...

    def load(self, shards: Collection[ShardId]) -> AsyncIterator[tuple[ShardId, Sequence[Record]]]:
        """Read what was durably written, one pass for all shards, in order within a group.

        A folded group comes as one SavedGroup, behind which SavedOffsets may hold more of it,
        before records some of which they may already hold: to apply those again changes nothing in
        the end. A backend with one lane is loaded whole, after every acquire and before the first
        append; nothing of a lane is appended while it is loaded.
        """
        ...

    async def append(self, items: Sequence[ShardAppend]) -> Collection[ShardId]:
        """Make records and events durable, in order; on return they survive a crash of the process.

        Each item is written whole or not at all. Returns the shards that were fenced: a newer lease
        has written to them and nothing of theirs was stored. Raises StorageError (or any exception)
        when it does not know whether the items were stored; the caller drops its state, acquires
        and loads again, and so it does after cancelling an append. One append at a time.
        """
        ...

    def unfolded(self) -> int:
        """How many requests were written and not yet folded; 0 where nothing is folded."""
        ...

    def stats(self) -> dict[str, float]:
        """Plain numbers for the metrics endpoint: bytes, rows, the last seq. Never blocks."""
        ...

    async def check_after_unclean_end(self) -> str | None:
        """Look the store over if its last user did not close it; a line on what is wrong, or None.

        May take long and disturbs nobody: to be started once the shards answer.
        """
        ...


@runtime_checkable
class LoadsGroups(Protocol):
    """Optional part of the contract: for a store that can tell what a group has, but not which
    groups there are.

    ``load`` then yields what it knows without being asked by name (after a failed append: whatever
    was named before, but for what cannot be used), and each other group is read when a request
    first names it. The runtime holds that request, and those behind it, until the group is there.
    """

    async def load_group(self, shard: ShardId, group_id: str) -> Sequence[Record]:
        """Read one group; nothing where the store has nothing.

        Called once everything that was appended of its shard is durable, perhaps for several groups
        at a time and beside an append of others. Any exception means that it is not known what the
        group has: who waits is told to try again. StoreRefused: what it has cannot be used, and who
        waits gets UNKNOWN_SERVER_ERROR, which clients do not try again.
        """
        ...


@runtime_checkable
class CanBeMoved(Protocol):
    """Optional part of the contract: for a store of files that somebody may move, delete or replace
    while it is open.
    """

    async def check_place(self) -> None:
        """Raise StoreRefused once a file is not the one that was opened, and from then on always;
        nothing is appended or acquired any more. The runtime calls it each second.
        """
        ...


@runtime_checkable
class KeepsEvents(Protocol):
    """Optional part of the contract: for a store whose event log can be read from here."""

    def history(self, group_id: str, since_ms: int = 0) -> AsyncIterator[EventDict]:
        """Yield the durable events of a group that are still kept, oldest first, from a moment on
        (by ``ts_ms``)."""
        ...
