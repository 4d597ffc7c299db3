"""Copy the groups of a store into another store, for ``groupkeeper storage move``.

Both stores stay locked during the copy, so that no process can start with one of them. If this
process is suspended for longer than its leases live, another process may start with the source. The
move then fails. A move that failed or was interrupted can be repeated: values that the target has
already are not written again. At the end all values are read back and compared.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, NamedTuple, Protocol

import msgspec

from groupkeeper.coordinator.core.consumer_records import ConsumerGroupRecord
from groupkeeper.coordinator.core.records import GroupMetadata, Record, SavedGroup
from groupkeeper.storage.backends.journal.driver import Value
from groupkeeper.storage.base import (
    CLUSTER_SHARD,
    Lease,
    LimitsReads,
    OffsetStorage,
    ShardId,
    StorageError,
    StoreIdentity,
    StoreRefused,
)
from groupkeeper.storage.codec.records import encode_saved, own_key
from groupkeeper.storage.keyed import KeyedRecords

PORTION_BYTES: Final = 1024 * 1024
"""The approximate size of the values that one call writes."""
_LOOK_S: Final = 0.05
_MOST_LOOKS: Final = 200
"""At its end a move asks at most this many times whether the leases are confirmed. This takes 10 s
in all.
"""

Key = tuple[ShardId, bool, str]
Values = dict[Key, bytes]
"""The encoded value of each group and each keyed record. Equal states have equal bytes."""

_replace = msgspec.structs.replace
_decode_group: Final = msgspec.json.Decoder(ConsumerGroupRecord).decode


class Moved(NamedTuple):
    """The result of a move: the groups of the source, and the values that were written."""

    groups: int
    written: int
    """The number of values that were missing or different in the target, and were written."""


class MoveTarget(Protocol):
    """An open store that only the move uses (``storage.tools.move_targets``)."""

    name: str
    """The store's URL or path, for messages."""

    async def read(self) -> Values:
        """Return all groups and keyed records that the store has."""
        ...

    async def write(self, values: Sequence[Value]) -> None:
        """Write values. They replace the values that the store has under the same keys."""
        ...


async def move(
    source: OffsetStorage,
    opening: AbstractAsyncContextManager[MoveTarget],
    identity: StoreIdentity,
    *,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> Moved:
    """Copy every group, topic and config from ``source`` to the target. ``opening`` opens the
    target and closes it. The events are not copied: the target begins a new log, and
    ``kept_events`` writes the events of the source into files.

    Raises StoreRefused if a process uses one of the stores, or if the target has groups that the
    source does not have. Raises StorageError if the two stores differ at the end.
    """
    async with _held(source, identity) as wanted, opening as target:
        found = await target.read()
        if strange := found.keys() - wanted.keys():
            name = min(strange)[2]
            raise StoreRefused(
                f"{target.name}: has {name!r}, which the source does not have: name an empty store"
            )
        missing = [key for key, data in wanted.items() if found.get(key) != data]
        for done, portion in _portions(missing, wanted):
            await target.write(portion)
            progress(done, len(missing))
        if await target.read() != wanted:
            raise StorageError(f"{target.name}: the copy differs from the source: try again")
    return Moved(sum(is_group for _, is_group, _ in wanted), len(missing))


@asynccontextmanager
async def _held(source: OffsetStorage, identity: StoreIdentity) -> AsyncIterator[Values]:
    """Open a store, acquire all its shards and yield their values. Release them at the end.

    Raises StorageError if another process has acquired them during this time, because it may have
    written to them. The check comes after the last read. In a store with a journal, ``release`` is
    a transaction that checks that our own life has not ended. So even a move that was suspended
    just before ``release`` notices the other process. In topics of Kafka, only ``_confirmed``
    checks. A process that starts with the store after the check is like one that starts after the
    move.
    """
    shards = all_shards(identity)
    await source.open(identity)
    try:
        acquired = await source.acquire(shards, "groupkeeper storage move")
        leases = [*acquired.values()]
        if len(leases) < len(shards):
            raise StorageError("another process has shards of the old store: stop it first")
        yield values_of(await keyed_of(source.load(shards)))
        if isinstance(source, LimitsReads):
            await _confirmed(source, leases)
        if await source.renew(leases):
            raise StorageError("another process has used the old store during the copy: try again")
        await source.release(leases)
    finally:
        await source.close()


async def _confirmed(source: LimitsReads, leases: Sequence[Lease]) -> None:
    """Wait until the store has confirmed the leases, or one is lost.

    Raises StorageError if the store confirms nothing for some seconds. This process may have been
    suspended, or cut off from the store, for so long that another process has acquired the shards
    and written to them. ``renew`` alone would not notice this, because it returns only what the
    last answer of the store said.
    """
    for _ in range(_MOST_LOOKS):
        if source.read_time_left_ms() or source.lost(leases):
            return
        await asyncio.sleep(_LOOK_S)
    raise StorageError(
        "the old store does not answer at the end of the copy, so another process may have used "
        "it: try again"
    )


def all_shards(identity: StoreIdentity) -> list[ShardId]:
    """Return every shard of a store."""
    return [CLUSTER_SHARD, *range(identity.shards)]


async def keyed_of(
    loaded: AsyncIterator[tuple[ShardId, Sequence[Record]]],
) -> dict[ShardId, KeyedRecords]:
    """Return the state of each shard after the records of a load."""
    shards: dict[ShardId, KeyedRecords] = {}
    async for shard, records in loaded:
        keyed = shards.setdefault(shard, KeyedRecords())
        for record in records:
            keyed.apply(record)
    return shards


def values_of(shards: Mapping[ShardId, KeyedRecords]) -> Values:
    """Return the encoded values of these shards. Keys that are cleared are left out."""
    values: Values = {}
    for shard, keyed in shards.items():
        for record in keyed.records():
            if (key := _key_of(shard, record)) is not None:
                values[key] = canonical(record)
    return values


def _key_of(shard: ShardId, record: Record) -> Key | None:
    """Return the key of a value; None if the record clears its key."""
    if isinstance(record, SavedGroup):
        return shard, True, record.group_id
    name, is_set = own_key(record)
    return (shard, False, name) if is_set else None


def canonical(record: Record) -> bytes:
    """Encode a value so that equal states have equal bytes. The parts of a value are sorted,
    because a store may return them in any order. Topics without offsets are left out.
    """
    if not isinstance(record, SavedGroup):
        return _encode(record)
    offsets = {
        topic: dict(sorted(rows.items())) for topic, rows in sorted(record.offsets.items()) if rows
    }
    in_order = _replace(record, metadata=_sorted(record.metadata), offsets=offsets)
    return encode_saved(in_order)


def _sorted(metadata: GroupMetadata | None) -> GroupMetadata | None:
    """Return a consumer group with its subscriptions and its members sorted, the members by their
    ids. Return anything else unchanged.

    A store in topics of Kafka keeps each member under its own key, so it does not keep the order of
    the members.
    """
    if not isinstance(metadata, ConsumerGroupRecord):
        return metadata
    names = tuple(sorted(set(metadata.subscriptions)))
    members = [
        _replace(member, subscription=names.index(metadata.subscriptions[member.subscription]))
        for member in sorted(metadata.members, key=lambda member: member.fields.member_id)
    ]
    in_order = _replace(metadata, subscriptions=names, members=tuple(members))
    return _decode_group(_encode(in_order))  # the dicts of its members are now in order too


def _encode(value: object) -> bytes:
    """Return JSON with sorted keys. msgspec's own ``order`` came with its version 0.19."""
    return json.dumps(msgspec.to_builtins(value, str_keys=True), sort_keys=True).encode()


def _portions(keys: list[Key], values: Values) -> Iterator[tuple[int, list[Value]]]:
    """Yield the values of these keys in portions, each with the number of values up to its end."""
    portion: list[Value] = []
    size = 0
    for done, key in enumerate(keys, 1):
        portion.append(Value(*key, values[key]))
        size += len(values[key])
        if size >= PORTION_BYTES or done == len(keys):
            yield done, portion
            portion, size = [], 0
