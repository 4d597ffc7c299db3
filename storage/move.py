"""Copy the groups of a store into a store on a server, for ``groupkeeper storage move``.

Nobody may use either store during the copy. The copy can be repeated after an interruption: values
that the target has already are not written again. At the end all values are read back and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from groupkeeper.coordinator.core.records import SavedGroup
from groupkeeper.storage.backends.journal.driver import Fold, JournalDriver, Value
from groupkeeper.storage.backends.journal.succession import fold_ended
from groupkeeper.storage.base import (
    CLUSTER_SHARD,
    OffsetStorage,
    ShardId,
    StorageError,
    StoreIdentity,
    StoreRefused,
)
from groupkeeper.storage.codec.records import encode_record, encode_saved, own_key
from groupkeeper.storage.keyed import KeyedRecords
from groupkeeper.storage.short_life import short_life

PORTION_BYTES: Final = 1024 * 1024
"""The approximate size of the values that one transaction writes."""

Key = tuple[ShardId, bool, str]
Values = dict[Key, bytes]


class Moved(NamedTuple):
    """The result of a move: the groups of the source, and the values that were written."""

    groups: int
    written: int
    """The number of values that were missing in the target, and were written."""


async def move(
    source: OffsetStorage,
    target: JournalDriver,
    identity: StoreIdentity,
    *,
    lease_ttl_ms: int,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> Moved:
    """Copy every group, topic and config from ``source`` to ``target``. The events are not copied:
    the target begins a new log.

    Raises StoreRefused if a process uses one of the stores, or if the target has groups that the
    source does not have. Raises StorageError if the two stores differ at the end.
    """
    wanted = await _read_source(source, identity)
    await target.open(identity)
    try:
        async with short_life(target, "move", lease_ttl_ms) as life_id:
            for ended in await target.ended_lives():
                await fold_ended(target, life_id, ended)
            found = await _read(target, identity)
            if strange := found.keys() - wanted.keys():
                name = min(strange)[2]
                raise StoreRefused(
                    f"{target.name}: has {name!r}, which the source does not have: name an empty "
                    "store"
                )
            missing = [key for key, data in wanted.items() if found.get(key) != data]
            for done, portion in _portions(missing, wanted):
                await target.fold(life_id, life_id, Fold(portion, 0, []))
                progress(done, len(missing))
            if await _read(target, identity) != wanted:
                raise StorageError(f"{target.name}: the copy differs from the source: try again")
    finally:
        await target.close()
    return Moved(sum(is_group for _, is_group, _ in wanted), len(missing))


async def _read_source(source: OffsetStorage, identity: StoreIdentity) -> Values:
    """Open a store, acquire all its shards, read them and close it. Return all its values, in the
    form in which a fold writes them.
    """
    shards = [CLUSTER_SHARD, *range(identity.shards)]
    keyed: Mapping[ShardId, KeyedRecords] = {shard: KeyedRecords() for shard in shards}
    await source.open(identity)
    try:
        leases = await source.acquire(shards, "groupkeeper storage move")
        async for shard, records in source.load(shards):
            for record in records:
                keyed[shard].apply(record)
        await source.release([*leases.values()])
    finally:
        await source.close()
    values: Values = {}
    for shard, records_of in keyed.items():
        for record in records_of.records():
            if isinstance(record, SavedGroup):
                values[shard, True, record.group_id] = encode_saved(record)
            else:
                name, is_set = own_key(record)
                if is_set:
                    values[shard, False, name] = encode_record(record)
    return values


async def _read(driver: JournalDriver, identity: StoreIdentity) -> Values:
    """Return all folded values of a store."""
    found: Values = {}
    async for values in driver.read([CLUSTER_SHARD, *range(identity.shards)]):
        found.update({value[:3]: value.data for value in values if value.data is not None})
    return found


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
