"""A shared store in ZooKeeper: the calls of ``storage.backends.journal.driver`` as operations on
znodes. That file explains the words life, beat, journal and fold.

A life has a znode until it ends. Each transaction that writes checks first that this znode exists.
The znodes of the store are not ephemeral, so no end of a ZooKeeper session can end a life.

This file is long because every call of the journal is here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

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
    identity_data,
    identity_of,
    life_of,
    node_data,
    owners_of,
    release_shards,
    shards_data,
)
from groupkeeper.storage.backends.key_value.driver import (
    CALL_SHARE,
    FOLD_TIMEOUT_S,
    KeyValueDriver,
)
from groupkeeper.storage.backends.key_value.escaping import plain_name
from groupkeeper.storage.backends.key_value.event_chunks import CHUNK_BYTES, MAX_CHUNKS
from groupkeeper.storage.backends.mirror.mirror import Mirror
from groupkeeper.storage.backends.zookeeper.journal import (
    OwnLife,
    append_entry,
    end_at,
    entry_rows,
    folded_names,
    read_entry,
)
from groupkeeper.storage.backends.zookeeper.leftovers import (
    remove_value_leftovers,
    value_leftovers,
)
from groupkeeper.storage.backends.zookeeper.link import ZooKeeperLink
from groupkeeper.storage.backends.zookeeper.mirror import zookeeper_mirror
from groupkeeper.storage.backends.zookeeper.names import is_node_name
from groupkeeper.storage.backends.zookeeper.nodes import ROOT, StoreNodes, is_entry
from groupkeeper.storage.backends.zookeeper.url import ZooKeeperUrl
from groupkeeper.storage.backends.zookeeper.values import (
    FencedBatch,
    for_each,
    read_value,
    write_values,
)
from groupkeeper.storage.base import (
    LeaseEpoch,
    ShardId,
    StorageError,
    StoreIdentity,
    StoreRefused,
    refuse_other_identity,
)
from groupkeeper.storage.connections.zookeeper import Node, ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import (
    NodeChanged,
    NodeExists,
    NodeMissing,
    NotAllowed,
    TransactionRefused,
)
from groupkeeper.storage.connections.zookeeper_settings import (
    ANYONE,
    CREATOR_ONLY,
    AccessRule,
    ZooKeeperSettings,
)
from groupkeeper.storage.connections.zookeeper_transaction import (
    CheckNode,
    CreateNode,
    DeleteNode,
    SetNode,
)
from groupkeeper.storage.leases.lives import NodeLife

READ_PORTION: Final = 256
"""The number of values that a load yields at a time."""

_T = TypeVar("_T")


class ZooKeeperDriver(KeyValueDriver):
    """One store: a znode, and everything below it."""

    why_moved = "was the ensemble set back?"
    chunk_bytes = CHUNK_BYTES
    max_chunks = MAX_CHUNKS

    def __init__(self, url: ZooKeeperUrl, *, append_timeout_ms: int, lease_ttl_ms: int) -> None:
        self._nodes = StoreNodes(f"{url.address.chroot}/{ROOT}")
        settings = ZooKeeperSettings(
            url.address,
            connect_timeout_ms=append_timeout_ms,
            digest=url.digest,
            access=ANYONE if url.digest is None else CREATOR_ONLY,
            tls=url.tls,
        )
        opening = zookeeper_mirror(_open_to_readers(settings))
        super().__init__(url.name, Mirror(opening, is_node_name) if url.has_mirror else None)
        self._calls, self._beats = self._links = [
            ZooKeeperLink(url.name, settings, limit_ms * CALL_SHARE / 1000, self.round_trips)
            for limit_ms in (append_timeout_ms, lease_ttl_ms)
        ]
        self._own: OwnLife | None = None
        self._seen_lives: frozenset[str] = frozenset()
        """The lives that the last beat found."""
        self._parents: set[str] = set()
        """The znodes that are known to exist, so that values can be created below them."""

    # --- opening and closing ----------------------------------------------------------------------

    async def open(self, identity: StoreIdentity) -> None:
        async def prepare(session: ZooKeeperSession) -> None:
            root = self._nodes.root
            try:
                found = (await session.get(root)).data
            except NodeMissing:
                await session.ensure(root.rpartition("/")[0])
                with contextlib.suppress(NodeExists):  # another process was faster
                    await session.create(root, identity_data(identity))
                found = (await session.get(root)).data
            refuse_other_identity(self.name, identity_of(self.name, found), identity)
            await for_each(session.ensure, self._nodes.all_parents())

        try:
            await self._calls.run("open", prepare)
        except BaseException:
            await self.close()
            raise

    async def open_to_read(self) -> None:
        async def look(session: ZooKeeperSession) -> None:
            try:
                identity_of(self.name, (await session.get(self._nodes.root)).data)
            except NodeMissing:
                raise StoreRefused(f"{self.name}: there is no store") from None

        await self._calls.run("open", look)

    async def close(self) -> None:
        self._own = self._chunks = None
        if self._mirror is not None:
            await self._mirror.close()
        await asyncio.gather(*(link.close() for link in self._links))

    # --- lives ------------------------------------------------------------------------------------

    async def _begin_life(self, life: NodeLife) -> Begun:
        async def begin(session: ZooKeeperSession) -> Begun:
            turn = await session.get(self._nodes.nodes)
            lives = await self._lives(session)
            path = self._nodes.end(life.node_id)
            end, version = await end_at(session, path)
            others = [each for each in lives if each.life_id != life.life_id]
            if others:
                return Begun(others, end)
            data = node_data(life)
            if not lives:
                await session.transact(
                    SetNode(self._nodes.nodes, b"", turn.version),  # one life begins at a time
                    CreateNode(self._nodes.node(life.life_id), data),
                    CreateNode(self._nodes.life(life.life_id)),
                    *([CreateNode(path, end_data(end))] if version is None else []),
                )
            self._own = OwnLife(life.life_id, data, path, version or 0, end)
            self._chunks = None
            return Begun([], end)

        return await self._calls.run_until_done("begin_life", begin)

    async def _lives(
        self, session: ZooKeeperSession, seen: frozenset[str] = frozenset()
    ) -> list[NodeLife]:
        """Return the lives that have not ended. If all of them were seen before, this needs only
        one round trip.
        """

        async def read(life_id: str) -> NodeLife | None:
            try:
                node = await session.get(self._nodes.node(life_id))
            except NodeMissing:
                return None
            return life_of(life_id, node.data, node.version)

        listed, found = await asyncio.gather(
            session.children(self._nodes.nodes), for_each(read, seen)
        )
        found += await for_each(read, [name for name in listed.names if name not in seen])
        return [life for life in found if life is not None]

    async def lives(self) -> Sequence[NodeLife]:
        return await self._calls.run("lives", self._lives)

    async def beat(self, life_id: str) -> StoreLook:
        own = self._own
        if own is None or own.life_id != life_id:
            raise self._over(life_id)

        async def beat(session: ZooKeeperSession) -> StoreLook:
            try:
                _, lives, shards = await asyncio.gather(
                    session.transact(SetNode(self._nodes.node(life_id), own.node_data)),
                    self._lives(session, self._seen_lives),
                    session.get(self._nodes.shards),
                )
            except TransactionRefused as refused:
                if isinstance(refused.error, NodeMissing):
                    raise self._over(life_id) from None
                raise
            self._seen_lives = frozenset(life.life_id for life in lives)
            return StoreLook(lives, owners_of(shards.data))

        return await self._beats.run("beat", beat)

    async def end_life(self, life_id: str, counter: int | None) -> bool:
        async def end(session: ZooKeeperSession) -> bool:
            path = self._nodes.node(life_id)
            try:
                node = None if counter is None else await session.get(path)
                if node is not None and node.version != counter:
                    return False
                await session.delete(path, node)
            except (NodeMissing, NodeChanged):
                return False
            return True

        return await self._calls.run("end_life", end)

    async def ended_lives(self) -> Sequence[str]:
        async def ended(session: ZooKeeperSession) -> Sequence[str]:
            lives = (await session.children(self._nodes.lives)).names
            going_on = (await session.children(self._nodes.nodes)).names
            gone = [life_id for life_id in lives if life_id not in going_on]
            nodes = await for_each(session.get, [self._nodes.life(life_id) for life_id in gone])
            begun = {life_id: node.created_in for life_id, node in zip(gone, nodes, strict=True)}
            return sorted(gone, key=begun.__getitem__)

        return await self._calls.run("ended_lives", ended)

    async def free(self, life_id: str, ended: str) -> None:
        path = self._nodes.life(ended)

        async def free(session: ZooKeeperSession) -> None:
            try:
                names = (await session.children(path)).names
            except NodeMissing:
                raise self._freed(ended) from None
            if any(map(is_entry, names)):
                raise StorageError(f"{self.name}: the journal of life {ended} is not folded")
            node, owners = await self._owners(session)
            release_shards(owners, ended, owners)
            await session.transact(
                CheckNode(self._nodes.node(life_id)),
                SetNode(self._nodes.shards, shards_data(owners), node.version),
                *(DeleteNode(f"{path}/{name}") for name in names),
                DeleteNode(path),
            )

        await self._calls.run_until_done("free", free, self._over(life_id))

    # --- shards -----------------------------------------------------------------------------------

    async def _owners(self, session: ZooKeeperSession) -> tuple[Node, dict[ShardId, OwnedShard]]:
        node = await session.get(self._nodes.shards)
        return node, owners_of(node.data)

    async def acquire(
        self, life_id: str, shards: Collection[ShardId]
    ) -> Mapping[ShardId, LeaseEpoch]:
        async def acquire(session: ZooKeeperSession) -> Mapping[ShardId, LeaseEpoch]:
            node, owners = await self._owners(session)
            epochs = acquire_shards(owners, life_id, shards)
            await session.transact(
                CheckNode(self._nodes.node(life_id)),
                SetNode(self._nodes.shards, shards_data(owners), node.version),
            )
            return epochs

        return await self._calls.run_until_done("acquire", acquire, self._over(life_id))

    async def release(self, life_id: str, shards: Collection[ShardId]) -> None:
        async def release(session: ZooKeeperSession) -> None:
            node, owners = await self._owners(session)
            release_shards(owners, life_id, shards)
            await session.transact(
                CheckNode(self._nodes.node(life_id)),
                SetNode(self._nodes.shards, shards_data(owners), node.version),
            )

        await self._calls.run_until_done("release", release, self._over(life_id))

    # --- records ----------------------------------------------------------------------------------

    async def append(self, life_id: str, entry: JournalEntry) -> None:
        own = self._own
        if own is None or own.life_id != life_id:
            raise self._over(life_id)

        async def append(session: ZooKeeperSession) -> None:
            try:
                if own.end.next_seq != entry.first_seq:
                    raise self._moved(own.end.next_seq, entry)
                await append_entry(session, self._nodes, own, entry)
            except TransactionRefused as refused:
                if isinstance(refused.error, NotAllowed):
                    raise
                if refused.position == 0:
                    raise self._over(life_id) from None
                end, _ = await end_at(session, own.end_path)
                raise self._moved(end.next_seq, entry) from None

        await self._calls.run("append", append)

    async def journal(self, life_id: str) -> AsyncIterator[JournalEntry]:
        path = self._nodes.life(life_id)
        for row in await self._calls.run("journal", partial(entry_rows, path=path)):
            read = partial(read_entry, nodes=self._nodes, life_id=life_id, row=row)
            yield await self._calls.run("journal", read, FOLD_TIMEOUT_S)

    async def fold(self, life_id: str, journal_of: str, fold: Fold) -> None:
        """Write the values first, then move the events and delete the entries.

        Only the operations in one request are atomic. If a fold is interrupted, it is repeated,
        perhaps by another process. The result is the same. An append that gets no answer ends the
        session, and with it the fold.
        """
        guard = [CheckNode(self._nodes.node(life_id))]
        errors = [self._over(life_id)]
        if journal_of != life_id:
            guard.append(CheckNode(self._nodes.life(journal_of)))
            errors.append(self._freed(journal_of))
        values = [(self._nodes.value(*value[:3]), value.data) for value in fold.values]
        chunks = await self._event_chunks()

        async def write(session: ZooKeeperSession) -> None:
            await self._ensure_parents(session, fold.values)
            batch = FencedBatch(session, guard)
            await write_values(batch, values)
            await write_values(batch, events)
            path = self._nodes.life(journal_of)
            for name in await folded_names(session, path, fold.trim_row):
                await batch.add(DeleteNode(f"{path}/{name}"))
            await batch.send()

        try:
            written = await chunks.add_in_turns(fold.events)
            events = [(f"{self._nodes.events}/{name}", data) for name, data in written]
            await self._calls.run_until_done("fold", write, *errors, timeout_s=FOLD_TIMEOUT_S)
        except BaseException:
            self._chunks = None
            raise
        self._show(fold.values)

    async def _ensure_parents(self, session: ZooKeeperSession, values: Sequence[Value]) -> None:
        parents = {self._nodes.values(value.shard, value.is_group) for value in values}
        new = parents - self._parents
        await for_each(session.ensure, sorted(new))
        self._parents |= new

    async def read(self, shards: Collection[ShardId]) -> AsyncIterator[Sequence[Value]]:
        for is_group in (False, True):
            for shard in shards:
                path = self._nodes.values(shard, is_group)
                names = await self._calls.run("read", partial(_names_below, path=path))
                keys = [(shard, is_group, plain_name(name)) for name in names]
                for at in range(0, len(keys), READ_PORTION):
                    values = await self._values(keys[at : at + READ_PORTION])
                    self._show(values)
                    yield values

    async def read_groups(self, groups: Collection[tuple[ShardId, str]]) -> Sequence[Value]:
        return await self._values([(shard, True, name) for shard, name in groups])

    async def _values(self, keys: Sequence[tuple[ShardId, bool, str]]) -> Sequence[Value]:
        paths = [self._nodes.value(*key) for key in keys]
        found = await self._calls.run(
            "_values", lambda session: for_each(partial(read_value, session), paths), FOLD_TIMEOUT_S
        )
        return [
            Value(*key, data) for key, data in zip(keys, found, strict=True) if data is not None
        ]

    # --- leftovers --------------------------------------------------------------------------------

    async def _value_parents(self) -> list[str]:
        """Return the paths of all znodes whose children have values."""
        root = self._nodes.root
        parents = [self._nodes.events]
        for kind in (f"{root}/groups", f"{root}/keyed"):
            names = await self._calls.run("leftovers", partial(_names_below, path=kind))
            parents += [f"{kind}/{name}" for name in names]
        return parents

    async def leftovers(self) -> Sequence[str]:
        found: list[str] = []
        for parent in await self._value_parents():
            look = partial(value_leftovers, parent=parent)
            found += map(str, await self._calls.run("leftovers", look, FOLD_TIMEOUT_S))
        return found

    async def remove_leftovers(self, life_id: str) -> None:
        for parent in await self._value_parents():

            async def remove(session: ZooKeeperSession, parent: str = parent) -> None:
                batch = FencedBatch(session, [CheckNode(self._nodes.node(life_id))])
                for each in await value_leftovers(session, parent):
                    await remove_value_leftovers(batch, each)
                await batch.send()

            await self._calls.run_until_done(
                "remove_leftovers", remove, self._over(life_id), timeout_s=FOLD_TIMEOUT_S
            )

    # --- events -----------------------------------------------------------------------------------

    async def _chunk_names(self, call: str) -> Sequence[str]:
        return await self._calls.run(call, partial(_names_below, path=self._nodes.events))

    async def _read_chunks(self, names: Sequence[str]) -> Mapping[str, bytes]:
        async def read(session: ZooKeeperSession) -> Mapping[str, bytes]:
            paths = [f"{self._nodes.events}/{name}" for name in names]
            found = await for_each(partial(read_value, session), paths)
            return {name: data for name, data in zip(names, found, strict=True) if data is not None}

        return await self._calls.run("events", read)

    async def _delete_chunks(self, call: str, life_id: str, names: Sequence[str]) -> None:
        paths = [f"{self._nodes.events}/{name}" for name in names]

        async def delete(session: ZooKeeperSession) -> None:
            batch = FencedBatch(session, [CheckNode(self._nodes.node(life_id))])
            await write_values(batch, [(path, None) for path in paths])
            await batch.send()

        await self._calls.run_until_done(call, delete, self._over(life_id))

    # --- ends and notes of nodes ------------------------------------------------------------------

    async def ends(self) -> Mapping[int, JournalEnd]:
        async def read(session: ZooKeeperSession) -> Mapping[int, JournalEnd]:
            names = await _names_below(session, self._nodes.ends)
            return {
                int(name): (await end_at(session, self._nodes.end(int(name))))[0] for name in names
            }

        return await self._calls.run("ends", read)

    async def seal_notes(self) -> Mapping[int, bytes]:
        async def read(session: ZooKeeperSession) -> Mapping[int, bytes]:
            names = await _names_below(session, self._nodes.sealed)
            found = await for_each(
                partial(read_value, session), [f"{self._nodes.sealed}/{name}" for name in names]
            )
            return {
                int(name): data for name, data in zip(names, found, strict=True) if data is not None
            }

        return await self._calls.run("seal_notes", read)

    async def write_seal_note(self, life_id: str, node_id: int, note: bytes) -> None:
        async def write(session: ZooKeeperSession) -> None:
            batch = FencedBatch(session, [CheckNode(self._nodes.node(life_id))])
            await write_values(batch, [(f"{self._nodes.sealed}/{node_id}", note)])
            await batch.send()

        await self._calls.run_until_done("write_seal_note", write, self._over(life_id))


def _open_to_readers(settings: ZooKeeperSettings) -> ZooKeeperSettings:
    """Return the settings with which the mirror writes its znodes: everybody may read them."""
    if settings.digest is None:
        return settings
    return replace(settings, access=(AccessRule("world", "anyone", "r"), *CREATOR_ONLY))


async def _names_below(session: ZooKeeperSession, path: str) -> tuple[str, ...]:
    """Return the names of the children of a znode; no names if the znode does not exist."""
    try:
        return (await session.children(path)).names
    except NodeMissing:
        return ()
