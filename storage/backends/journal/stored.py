"""Encodes all data of a store of keys and values except the values of groups (pure).

This is the same for ZooKeeper and Consul: the identity of the store, lives (the registrations of
processes), the owners of shards, the ends of logs, and the entries of journals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from groupkeeper.storage.backends.journal.driver import JournalEnd, JournalEntry, OwnedShard
from groupkeeper.storage.base import LeaseEpoch, ShardId, StorageError, StoreIdentity, StoreRefused
from groupkeeper.storage.leases.lives import NodeLife

FORMAT_VERSION: Final = 1

_T = TypeVar("_T")


class _Identity(msgspec.Struct):
    format: int
    cluster_id: str
    shards: int


class _StoredNode(msgspec.Struct):
    node_id: int
    name: str


class _StoredEnd(msgspec.Struct, omit_defaults=True):
    log_id: str | None
    next_seq: int
    ts_ms: int
    entry: str = ""


class _EntryHead(msgspec.Struct):
    first_seq: int
    event_count: int
    log_id: str
    ts_ms: int
    parts: int


def identity_data(identity: StoreIdentity) -> bytes:
    """Encode the identity of a store."""
    return msgspec.json.encode(_Identity(FORMAT_VERSION, identity.cluster_id, identity.shards))


def identity_of(name: str, data: bytes) -> StoreIdentity:
    """Decode the identity of the store ``name``. Raises StorageError if it cannot be read, and
    StoreRefused if a newer groupkeeper wrote it.
    """
    found = _decoded(data, _Identity, "the identity of the store")
    if found.format > FORMAT_VERSION:
        raise StoreRefused(f"{name}: was written by a newer groupkeeper")
    return StoreIdentity(found.cluster_id, found.shards)


def node_data(life: NodeLife) -> bytes:
    """Encode a life, without its counter."""
    return msgspec.json.encode(_StoredNode(life.node_id, life.name))


def life_of(life_id: str, data: bytes, counter: int) -> NodeLife:
    """Decode a life. Its counter is stored elsewhere. Raises StorageError if the life cannot be
    read.
    """
    found = _decoded(data, _StoredNode, f"the node of life {life_id}")
    return NodeLife(found.node_id, life_id, found.name, counter)


def end_data(end: JournalEnd, entry: str = "") -> bytes:
    """Encode the end of a log. ``entry`` names its last entry, so that each end is different, even
    after an append without events.
    """
    return msgspec.json.encode(_StoredEnd(*end, entry))


def end_of(data: bytes) -> JournalEnd:
    """Decode the end of a log. Raises StorageError if it cannot be read."""
    found = _decoded(data, _StoredEnd, "the end of the log")
    return JournalEnd(found.log_id, found.next_seq, found.ts_ms)


def shards_data(owners: Mapping[ShardId, OwnedShard]) -> bytes:
    """Encode the owners of all shards."""
    return msgspec.json.encode(owners)


def owners_of(data: bytes) -> dict[ShardId, OwnedShard]:
    """Decode the owners of all shards. Raises StorageError if they cannot be read."""
    if not data:
        return {}
    found = _decoded(data, dict[ShardId, tuple[str | None, LeaseEpoch]], "the owners of shards")
    return {shard: OwnedShard(*owner) for shard, owner in found.items()}


def acquire_shards(
    owners: dict[ShardId, OwnedShard], life_id: str, shards: Iterable[ShardId]
) -> dict[ShardId, LeaseEpoch]:
    """Make a life the owner of those of the shards that are free, or that it already owns. This
    changes ``owners`` in place. Return the new epochs.
    """
    epochs = {}
    for shard in shards:
        owner = owners.get(shard, OwnedShard(None, 0))
        if owner.life_id in (None, life_id):
            epochs[shard] = owner.epoch + 1
            owners[shard] = OwnedShard(life_id, epochs[shard])
    return epochs


def release_shards(
    owners: dict[ShardId, OwnedShard], life_id: str, shards: Iterable[ShardId]
) -> None:
    """Free those of the shards that the life owns. Their epochs stay. This changes ``owners`` in
    place.
    """
    for shard in shards:
        if owners[shard].life_id == life_id:
            owners[shard] = owners[shard]._replace(life_id=None)


def entry_parts(entry: JournalEntry, part_bytes: int) -> list[bytes]:
    """Split an entry into values of about ``part_bytes``. The first value begins with a line that
    describes the entry.
    """
    parts = split(entry.payload, part_bytes)
    head = _EntryHead(entry.first_seq, entry.event_count, entry.log_id, entry.ts_ms, len(parts))
    parts[0] = msgspec.json.encode(head) + b"\n" + parts[0]
    return parts


def parts_of_entry(first: bytes) -> int:
    """Return how many values an entry was split into. ``first`` is the first of them."""
    return _head_of(first).parts


def entry_of(row: int, parts: list[bytes]) -> JournalEntry:
    """Join the values of a journal entry. Raises StorageError if the first value cannot be read."""
    head = _head_of(parts[0])
    payload = b"".join([parts[0].partition(b"\n")[2], *parts[1:]])
    return JournalEntry(row, head.first_seq, head.event_count, head.log_id, head.ts_ms, payload)


def split(data: bytes, part_bytes: int) -> list[bytes]:
    """Divide a value into parts of at most ``part_bytes``. An empty value has one empty part."""
    return [data[at : at + part_bytes] for at in range(0, len(data), part_bytes)] or [b""]


def _head_of(first: bytes) -> _EntryHead:
    return _decoded(first.partition(b"\n")[0], _EntryHead, "an entry of the journal")


def _decoded(data: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise StorageError(f"{what} cannot be read: {error}") from error
