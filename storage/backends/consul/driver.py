"""A shared store in Consul: the calls of ``storage.backends.journal.driver`` as transactions on
keys. That file explains the words life, beat, journal and fold.

A life has a key until it ends. Each transaction that writes checks first that this key is still the
same. No session and no TTL of Consul decides about a life.

This file is long because every call of the journal is here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from groupkeeper.storage.backends.consul.keys import (
    PART_BYTES,
    StoreKeys,
    is_entry,
    row_of,
    stored_value,
    value_of,
)
from groupkeeper.storage.backends.consul.leftovers import (
    part_leftovers,
    remove_part_leftovers,
)
from groupkeeper.storage.backends.consul.link import ConsulLink, connect
from groupkeeper.storage.backends.consul.mirror import consul_mirror, is_key_name
from groupkeeper.storage.backends.consul.operations import (
    Operation,
    check,
    delete,
    delete_all,
    read,
    read_all,
    replace,
    write,
)
from groupkeeper.storage.backends.consul.url import ConsulUrl
from groupkeeper.storage.backends.consul.values import (
    READ_PARTS,
    ConsulBatch,
    Parts,
    read_keys,
    read_values,
)
from groupkeeper.storage.backends.journal.driver import (
    Begun,
    Fold,
    JournalEnd,
    JournalEntry,
    OwnedShard,
    StoreLook,
    Value,
)
from groupkeeper.storage.backends.journal.stored import (
    acquire_shards,
    end_data,
    end_of,
    entry_of,
    entry_parts,
    identity_data,
    identity_of,
    life_of,
    node_data,
    owners_of,
    parts_of_entry,
    release_shards,
    shards_data,
)
from groupkeeper.storage.backends.key_value.driver import (
    CALL_SHARE,
    FOLD_TIMEOUT_S,
    KeyValueDriver,
)
from groupkeeper.storage.backends.mirror.mirror import Mirror
from groupkeeper.storage.base import (
    LeaseEpoch,
    ShardId,
    StorageError,
    StoreIdentity,
    StoreRefused,
    refuse_other_identity,
)
from groupkeeper.storage.connections.consul import MOST_OPERATIONS, ConsulClient, ConsulEntry
from groupkeeper.storage.connections.consul_errors import ConsulUnavailable, TransactionFailed
from groupkeeper.storage.leases.lives import NodeLife


@dataclass
class ConsulLife:
    """The state of the life that this process has begun."""

    life_id: str
    index: int
    """Consul's index of the key of this life. It never changes."""
    node_id: int
    end_index: int
    """The index of the key with the end of the log. Only appends of this life change it."""
    end: JournalEnd
    beats: int = 0
    trimmed: int = 0
    """The number of the last entry that a fold has deleted from the journal of this life."""
    marks: dict[str, int] = field(default_factory=dict)
    """The life of a journal -> Consul's index of the key that each fold of this journal changes. An
    index that is missing here has to be read."""


class ConsulDriver(KeyValueDriver):
    """One store: all keys with one prefix."""

    why_moved = "was Consul restored from a snapshot?"
    chunk_bytes = 8 * 1024  # small, as Consul's log has every write until its next snapshot
    max_chunks = 2_048  # about 16 MiB, as in ZooKeeper

    def __init__(self, url: ConsulUrl, *, append_timeout_ms: int, lease_ttl_ms: int) -> None:
        """Raises ValueError if a file of TLS cannot be read."""
        tls = url.tls()  # only once, because it reads the system's authorities for up to 0.1 s
        mirror = None
        if url.mirror is not None:
            to_agent = partial(connect, url, tls)
            mirror = Mirror(consul_mirror(to_agent, url.mirror), is_key_name)
        super().__init__(url.name, mirror)
        self._keys = StoreKeys(url.prefix)
        self._calls, self._beats = self._links = [
            ConsulLink(url, tls, limit_ms * CALL_SHARE / 1000, self.round_trips)
            for limit_ms in (append_timeout_ms, lease_ttl_ms)
        ]
        self._own: ConsulLife | None = None
        self._parts: Parts | None = None
        """The values that are stored in parts. None before they are listed, and after a fold whose
        outcome is unknown."""

    # --- opening and closing ----------------------------------------------------------------------

    async def open(self, identity: StoreIdentity) -> None:
        async def prepare(client: ConsulClient) -> None:
            key = self._keys.identity
            found = await client.get(key)
            if found is None:
                await client.execute(
                    replace(key, 0, identity_data(identity)),
                    replace(self._keys.shards, 0, shards_data({})),
                )
                return
            refuse_other_identity(self.name, identity_of(self.name, found.value), identity)

        try:
            await self._calls.run("open", prepare)
        except BaseException:
            await self.close()
            raise

    async def open_to_read(self) -> None:
        async def look(client: ConsulClient) -> None:
            found = await client.get(self._keys.identity)
            if found is None:
                raise StoreRefused(f"{self.name}: there is no store")
            identity_of(self.name, found.value)

        await self._calls.run("open", look)

    async def close(self) -> None:
        self._forget()
        self._own = None
        if self._mirror is not None:
            await self._mirror.close()
        await asyncio.gather(*(link.close() for link in self._links))

    def _forget(self) -> None:
        """Forget the remembered state of the keys that only this process changes: it may be wrong
        if the outcome of a call is unknown. The next call that needs these keys reads them.
        """
        self._chunks = self._parts = None
        if self._own is not None:
            self._own.marks.clear()

    # --- lives ------------------------------------------------------------------------------------

    async def _begin_life(self, life: NodeLife) -> Begun:
        async def begin(client: ConsulClient) -> Begun:
            turn, end_key = self._keys.turn, self._keys.end(life.node_id)
            own_keys = [self._keys.life(life.life_id), self._keys.fold(life.life_id), end_key]
            found = await _found(client, *self._look(), read_all(turn), *map(read_all, own_keys))
            lives = self._lives(found)
            end = end_of(found[end_key].value) if end_key in found else JournalEnd(None, 1, 0)
            others = [each for each in lives if each.life_id != life.life_id]
            if others:
                return Begun(others, end)
            if not lives:
                begun = _indexes_of(
                    await client.execute(
                        replace(turn, _index(found, turn), life.life_id.encode()),
                        replace(own_keys[0], 0, node_data(life)),
                        replace(self._keys.beat(life.life_id), 0, b"0"),
                        replace(own_keys[1], 0, b""),
                        *([] if end_key in found else [replace(end_key, 0, end_data(end))]),
                    )
                )
            else:  # an earlier try was executed
                begun = {key: entry.at_index for key, entry in found.items()}
            end_index = begun.get(end_key) or _index(found, end_key)
            self._own = ConsulLife(life.life_id, begun[own_keys[0]], life.node_id, end_index, end)
            self._forget()
            return Begun([], end)

        return await self._calls.run("begin_life", begin)

    def _look(self) -> list[Operation]:
        return [read_all(self._keys.lives), read_all(self._keys.beats)]

    def _lives(self, found: Mapping[str, ConsulEntry]) -> list[NodeLife]:
        """Return the lives that have not ended. Each beat of a life changes a key. Consul's index
        of this key is the counter of the life.
        """
        lives = []
        for key, entry in found.items():
            if key.startswith(self._keys.lives):
                life_id = key.removeprefix(self._keys.lives)
                lives.append(
                    life_of(life_id, entry.value, found[self._keys.beat(life_id)].at_index)
                )
        return lives

    async def lives(self) -> Sequence[NodeLife]:
        async def look(client: ConsulClient) -> Sequence[NodeLife]:
            return self._lives(await _found(client, *self._look()))

        return await self._calls.run("lives", look)

    async def beat(self, life_id: str) -> StoreLook:
        own = self._own_life(life_id)

        async def beat(client: ConsulClient) -> StoreLook:
            own.beats += 1  # Consul does not raise the index if the value stays the same
            end_key = self._keys.end(own.node_id)
            found = await _found(
                client,
                self._goes_on(own),
                write(self._keys.beat(life_id), str(own.beats).encode()),
                *self._look(),
                read(self._keys.shards),
                read(end_key),
            )
            next_seq = end_of(found[end_key].value).next_seq
            owners = owners_of(found[self._keys.shards].value)
            return StoreLook(self._lives(found), owners, next_seq)

        return await self._beats.run("beat", beat, self._over(life_id))

    async def end_life(self, life_id: str, counter: int | None) -> bool:
        beat = self._keys.beat(life_id)
        condition = read(beat) if counter is None else check(beat, counter)

        async def end(client: ConsulClient) -> bool:
            try:
                await client.execute(condition, delete(self._keys.life(life_id)), delete(beat))
            except TransactionFailed:
                return False
            return True

        return await self._calls.run("end_life", end)

    async def ended_lives(self) -> Sequence[str]:
        async def ended(client: ConsulClient) -> Sequence[str]:
            folds, lives = read_all(self._keys.folds), read_all(self._keys.lives)
            found = (await _found(client, folds, lives)).values()
            begun = {entry.key.rpartition("/")[2]: entry.created_at for entry in found}
            going_on = [entry.key for entry in found if entry.key.startswith(self._keys.lives)]
            gone = [life for life in begun if self._keys.life(life) not in going_on]
            return sorted(gone, key=begun.__getitem__)

        return await self._calls.run("ended_lives", ended)

    async def free(self, life_id: str, ended: str) -> None:
        own = self._own_life(life_id)
        is_tried = False

        async def free(client: ConsulClient) -> None:
            nonlocal is_tried
            mark = await client.get(self._keys.fold(ended))
            if mark is None and is_tried:
                return
            if mark is None:
                raise self._freed(ended)
            journal = self._keys.journal(ended)
            if any(map(is_entry, await client.keys(journal, consistent=True))):
                raise StorageError(f"{self.name}: the journal of life {ended} is not folded")
            index, owners = await self._owners(client)
            release_shards(owners, ended, owners)
            is_tried = True
            await client.execute(
                self._goes_on(own),
                check(mark.key, mark.at_index),
                self._set_owners(index, owners),
                delete_all(journal),  # further parts of an append that was interrupted
                delete(mark.key),
            )

        await self._calls.run("free", free, self._over(life_id))

    def _own_life(self, life_id: str) -> ConsulLife:
        own = self._own
        if own is None or own.life_id != life_id:
            raise self._over(life_id)
        return own

    def _goes_on(self, own: ConsulLife) -> Operation:
        return check(self._keys.life(own.life_id), own.index)

    # --- shards -----------------------------------------------------------------------------------

    async def _owners(self, client: ConsulClient) -> tuple[int, dict[ShardId, OwnedShard]]:
        entry = await client.get(self._keys.shards)
        if entry is None:
            raise StorageError(f"{self.name}: the key {self._keys.shards} is missing")
        return entry.at_index, owners_of(entry.value)

    def _set_owners(self, index: int, owners: Mapping[ShardId, OwnedShard]) -> Operation:
        return replace(self._keys.shards, index, shards_data(owners))

    async def acquire(
        self, life_id: str, shards: Collection[ShardId]
    ) -> Mapping[ShardId, LeaseEpoch]:
        own = self._own_life(life_id)

        async def acquire(client: ConsulClient) -> Mapping[ShardId, LeaseEpoch]:
            index, owners = await self._owners(client)
            epochs = acquire_shards(owners, life_id, shards)
            await client.execute(self._goes_on(own), self._set_owners(index, owners))
            return epochs

        return await self._calls.run("acquire", acquire, self._over(life_id))

    async def release(self, life_id: str, shards: Collection[ShardId]) -> None:
        own = self._own_life(life_id)

        async def release(client: ConsulClient) -> None:
            index, owners = await self._owners(client)
            release_shards(owners, life_id, shards)
            await client.execute(self._goes_on(own), self._set_owners(index, owners))

        await self._calls.run("release", release, self._over(life_id))

    # --- records ----------------------------------------------------------------------------------

    async def append(self, life_id: str, entry: JournalEntry) -> None:
        """Store an entry. If it has several parts, its first part is written last: nobody reads the
        other parts without the first.

        If no answer comes, the transaction is sent again. It cannot be executed twice, because it
        compares and raises the index of the key that has the end of the log.
        """
        own = self._own_life(life_id)
        if own.end.next_seq != entry.first_seq:
            raise self._moved(own.end.next_seq, entry)
        first, *rest = entry_parts(entry, PART_BYTES)
        end = JournalEnd(entry.log_id, entry.first_seq + entry.event_count, entry.ts_ms)
        end_key = self._keys.end(own.node_id)
        entry_key = self._keys.entry(life_id, entry.row)
        new_end = end_data(end, entry_key)  # Consul keeps the index if the value stays the same
        is_in_doubt = False

        async def append(client: ConsulClient) -> int:
            nonlocal is_in_doubt
            try:
                for number, part in enumerate(rest, 1):
                    key = self._keys.entry(life_id, entry.row, number)
                    await client.execute(self._goes_on(own), write(key, part))
                found = await client.execute(
                    self._goes_on(own),
                    replace(end_key, own.end_index, new_end),
                    write(entry_key, first),
                )
            except ConsulUnavailable:
                is_in_doubt = True
                raise
            except TransactionFailed as failed:
                now = await client.get(end_key)
                if is_in_doubt and now is not None and now.value == new_end:
                    return now.at_index
                if is_in_doubt:
                    raise StorageError(
                        f"{self.name}: nobody knows whether an append was stored: {failed}"
                    ) from failed
                if failed.position == 0:
                    raise self._over(life_id) from None
                next_seq = 1 if now is None else end_of(now.value).next_seq
                raise self._moved(next_seq, entry) from None
            return _indexes_of(found)[end_key]

        own.end_index = await self._calls.run("append", append)
        own.end = end

    async def journal(self, life_id: str) -> AsyncIterator[JournalEntry]:
        prefix = self._keys.journal(life_id)
        found = await self._calls.run("journal", partial(_names, prefix=prefix))
        keys = [key for key in found if is_entry(key)]
        for at in range(0, len(keys), READ_PARTS):
            read_some = partial(read_keys, keys=keys[at : at + READ_PARTS])
            for key, first in (await self._calls.run("journal", read_some)).items():
                row = row_of(key)
                rest = [self._keys.entry(life_id, row, n) for n in range(1, parts_of_entry(first))]
                read_rest = partial(read_keys, keys=rest, at_once=READ_PARTS)
                parts = await self._calls.run("journal", read_rest, timeout_s=FOLD_TIMEOUT_S)
                yield entry_of(row, [first, *(parts[part] for part in rest)])

    async def fold(self, life_id: str, journal_of: str, fold: Fold) -> None:
        """Write the values first, then move the events and delete the entries.

        Only the operations in one transaction are atomic. If a fold is interrupted, it is repeated,
        perhaps by another process. The result is the same.
        """
        own = self._own_life(life_id)
        values = []
        for shard, is_group, name, data in fold.values:
            key = self._keys.value(shard, is_group, name)
            values.append((key, None if data is None else stored_value(key, name, data)))
        chunks = await self._event_chunks()
        trimmed = own.trimmed if journal_of == life_id else 0

        async def write_all(client: ConsulClient) -> None:
            parts = self._parts
            self._parts = None  # until the outcome is known
            if parts is None:
                parts = Parts(self._keys, await client.keys(self._keys.parts, consistent=True))
            batch = await self._batch(client, own, journal_of)
            await parts.replace(batch, [*values, *events])
            for rows in self._keys.rows(journal_of, trimmed, fold.trim_row):
                await batch.add(delete_all(rows))
            await batch.send()
            own.marks[journal_of] = batch.index
            self._parts = parts

        try:
            written = await chunks.add_in_turns(fold.events)
            events = [(self._keys.events + name, data) for name, data in written]
            await self._calls.run("fold", write_all, self._over(life_id), timeout_s=FOLD_TIMEOUT_S)
        except BaseException:
            self._forget()
            raise
        if journal_of == life_id:
            own.trimmed = max(own.trimmed, fold.trim_row)
        self._show(fold.values)

    async def _batch(self, client: ConsulClient, own: ConsulLife, journal_of: str) -> ConsulBatch:
        """Return a batch whose transactions change the mark of a journal (the key ``folds/LIFE``).
        Raises LifeOver if the shards of the journal's life are already free.
        """
        mark = self._keys.fold(journal_of)
        index = own.marks.pop(journal_of, None)
        if index is None:
            found = await client.get(mark)
            if found is None:
                raise self._freed(journal_of)
            index = found.at_index
        return ConsulBatch(client, self._goes_on(own), mark, index)

    async def read(self, shards: Collection[ShardId]) -> AsyncIterator[Sequence[Value]]:
        for is_group in (False, True):
            for shard in shards:
                prefix = self._keys.values(shard, is_group)
                keys = await self._calls.run("read", partial(_names, prefix=prefix))
                for at in range(0, len(keys), MOST_OPERATIONS):
                    found = await self._values(keys[at : at + MOST_OPERATIONS])
                    values = [value_of(shard, is_group, *item) for item in found.items()]
                    self._show(values)
                    yield values

    async def read_groups(self, groups: Collection[tuple[ShardId, str]]) -> Sequence[Value]:
        keys = {self._keys.value(shard, True, name): (shard, name) for shard, name in groups}
        found = await self._values([*keys])
        return [value_of(keys[key][0], True, key, data) for key, data in found.items()]

    async def _values(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        read_all_parts = partial(read_values, store=self._keys, keys=keys)
        return await self._calls.run("_values", read_all_parts, timeout_s=FOLD_TIMEOUT_S)

    # --- leftovers --------------------------------------------------------------------------------

    async def leftovers(self) -> Sequence[str]:
        look = partial(part_leftovers, keys=self._keys)
        return [*map(str, await self._calls.run("leftovers", look, timeout_s=FOLD_TIMEOUT_S))]

    async def remove_leftovers(self, life_id: str) -> None:
        own = self._own_life(life_id)

        async def remove(client: ConsulClient) -> None:
            batch = await self._batch(client, own, life_id)
            for each in await part_leftovers(client, self._keys):
                await remove_part_leftovers(batch, self._keys, each)
            await batch.send()

        try:
            await self._calls.run(
                "remove_leftovers", remove, self._over(life_id), timeout_s=FOLD_TIMEOUT_S
            )
        finally:
            self._forget()

    # --- events -----------------------------------------------------------------------------------

    async def _chunk_names(self, call: str) -> Sequence[str]:
        keys = await self._calls.run(call, partial(_names, prefix=self._keys.events))
        return [key.removeprefix(self._keys.events) for key in keys]

    async def _delete_chunks(self, call: str, life_id: str, names: Sequence[str]) -> None:
        own = self._own_life(life_id)

        async def delete_old(client: ConsulClient) -> None:
            for at in range(0, len(names), MOST_OPERATIONS - 1):
                some = names[at : at + MOST_OPERATIONS - 1]
                await client.execute(
                    self._goes_on(own), *(delete(self._keys.events + name) for name in some)
                )

        await self._calls.run(call, delete_old, self._over(life_id))

    async def _read_chunks(self, names: Sequence[str]) -> Mapping[str, bytes]:
        found = await self._values([self._keys.events + name for name in names])
        return {key.removeprefix(self._keys.events): data for key, data in found.items()}

    # --- ends and notes of nodes ------------------------------------------------------------------

    async def ends(self) -> Mapping[int, JournalEnd]:
        found = await self._by_node("ends", self._keys.ends)
        return {node_id: end_of(data) for node_id, data in found.items()}

    async def seal_notes(self) -> Mapping[int, bytes]:
        return await self._by_node("seal_notes", self._keys.sealed)

    async def _by_node(self, call: str, prefix: str) -> Mapping[int, bytes]:
        """Return the values of the keys below a prefix, by the node id with which each key ends."""
        keys = await self._calls.run(call, partial(_names, prefix=prefix))
        found = await self._values(keys)
        return {int(key.removeprefix(prefix)): data for key, data in found.items()}

    async def write_seal_note(self, life_id: str, node_id: int, note: bytes) -> None:
        own = self._own_life(life_id)
        key = f"{self._keys.sealed}{node_id}"

        async def write_note(client: ConsulClient) -> None:
            await client.execute(self._goes_on(own), write(key, note))

        await self._calls.run("write_seal_note", write_note, self._over(life_id))


async def _found(client: ConsulClient, *operations: Operation) -> dict[str, ConsulEntry]:
    """Execute operations. Return the entries that they read or changed, by their keys."""
    return {entry.key: entry for entry in await client.execute(*operations)}


async def _names(client: ConsulClient, prefix: str) -> tuple[str, ...]:
    return await client.keys(prefix, consistent=True)


def _indexes_of(entries: Sequence[ConsulEntry]) -> dict[str, int]:
    return {entry.key: entry.at_index for entry in entries}


def _index(found: Mapping[str, ConsulEntry], key: str) -> int:
    """Return the index of a key: 0 if it does not exist."""
    return found[key].at_index if key in found else 0
