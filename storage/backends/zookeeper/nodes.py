"""The nodes of a store, and what they contain (pure).

Below ``/groupkeeper``::

    (itself)                 the identity of the store
    nodes/LIFE               a life that has not ended. The version of the node counts its beats
    lives/LIFE/ROW           an entry of the journal of a life. ROW.N are further parts of it
    ends/NODE_ID             the end of the log of a node
    shards                   the owners and epochs of all shards
    groups/SHARD/NAME        the folded value of a group. Below it are its parts, if it is large
    keyed/SHARD/NAME         the folded value of a keyed record: a topic, a config or an end
    events/TIME-SEQ-ID       events, compressed
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

import msgspec

from groupkeeper.storage.backends.journal.driver import JournalEnd, JournalEntry, OwnedShard
from groupkeeper.storage.backends.zookeeper.names import node_name
from groupkeeper.storage.base import LeaseEpoch, ShardId, StorageError, StoreIdentity
from groupkeeper.storage.leases.lives import NodeLife

ROOT: Final = "groupkeeper"
"""The node of the store, below the chroot."""

FORMAT_VERSION: Final = 1

PART_BYTES: Final = 900 * 1024
"""The longest value of one node. A server accepts less than 1 MiB in one request."""


_T = TypeVar("_T")


class StoreNodes(NamedTuple):
    """Computes the paths of the nodes of a store, which are below ``root``."""

    root: str

    @property
    def nodes(self) -> str:
        return f"{self.root}/nodes"

    @property
    def lives(self) -> str:
        return f"{self.root}/lives"

    @property
    def ends(self) -> str:
        return f"{self.root}/ends"

    @property
    def shards(self) -> str:
        return f"{self.root}/shards"

    @property
    def events(self) -> str:
        return f"{self.root}/events"

    def node(self, life_id: str) -> str:
        """Return the node that exists until a life ends."""
        return f"{self.nodes}/{life_id}"

    def life(self, life_id: str) -> str:
        """Return the node of a life's journal."""
        return f"{self.lives}/{life_id}"

    def entry(self, life_id: str, row: int, part: int = 0) -> str:
        """Return the node of an entry, or of a further part of it."""
        return f"{self.lives}/{life_id}/{row:010d}" + (f".{part}" if part else "")

    def end(self, node_id: int) -> str:
        """Return the path of the end of the log that the groupkeeper node ``node_id`` writes."""
        return f"{self.ends}/{node_id}"

    def values(self, shard: ShardId, is_group: bool) -> str:
        """Return the parent of the values of a shard."""
        return f"{self.root}/{'groups' if is_group else 'keyed'}/{shard}"

    def value(self, shard: ShardId, is_group: bool, key: str) -> str:
        """Return the path of the node with the value of a group or of a keyed record."""
        return f"{self.values(shard, is_group)}/{node_name(key)}"

    def all_parents(self) -> tuple[str, ...]:
        """Return the nodes that every store has."""
        return (
            self.nodes,
            self.lives,
            self.ends,
            self.events,
            self.shards,
            f"{self.root}/groups",
            f"{self.root}/keyed",
        )


def row_of(name: str) -> int:
    """Return the row of an entry, or of a part of one."""
    return int(name.partition(".")[0])


def is_entry(name: str) -> bool:
    """Return False for a further part of an entry."""
    return "." not in name


class _Identity(msgspec.Struct):
    format: int
    cluster_id: str
    shards: int


class _StoredNode(msgspec.Struct):
    node_id: int
    name: str


class _StoredEnd(msgspec.Struct):
    log_id: str | None
    next_seq: int
    ts_ms: int


class _EntryHead(msgspec.Struct):
    first_seq: int
    event_count: int
    log_id: str
    ts_ms: int
    parts: int


def identity_data(identity: StoreIdentity) -> bytes:
    """Encode the identity of a store."""
    return msgspec.json.encode(_Identity(FORMAT_VERSION, identity.cluster_id, identity.shards))


def identity_of(data: bytes) -> tuple[int, StoreIdentity]:
    """Return the format and the identity of a store. Raises StorageError."""
    found = _decoded(data, _Identity, "the identity of the store")
    return found.format, StoreIdentity(found.cluster_id, found.shards)


def node_data(life: NodeLife) -> bytes:
    """Encode the node of a life, without its counter."""
    return msgspec.json.encode(_StoredNode(life.node_id, life.name))


def life_of(life_id: str, data: bytes, version: int) -> NodeLife:
    """Return the life that a node describes. The version of the node is the counter."""
    found = _decoded(data, _StoredNode, f"the node of life {life_id}")
    return NodeLife(found.node_id, life_id, found.name, version)


def end_data(end: JournalEnd) -> bytes:
    """Encode the end of a log for its node."""
    return msgspec.json.encode(_StoredEnd(*end))


def end_of(data: bytes) -> JournalEnd:
    """Decode the node with the end of a log. Raises StorageError."""
    found = _decoded(data, _StoredEnd, "the end of the log")
    return JournalEnd(found.log_id, found.next_seq, found.ts_ms)


def shards_data(owners: Mapping[ShardId, OwnedShard]) -> bytes:
    """Encode the owners of all shards for their node."""
    return msgspec.json.encode(owners)


def owners_of(data: bytes) -> dict[ShardId, OwnedShard]:
    """Decode the node with the owners of all shards. Raises StorageError."""
    if not data:
        return {}
    found = _decoded(data, dict[ShardId, tuple[str | None, LeaseEpoch]], "the owners of shards")
    return {shard: OwnedShard(*owner) for shard, owner in found.items()}


def entry_parts(entry: JournalEntry) -> list[bytes]:
    """Split an entry into the values of its nodes. The first begins with a line about the entry."""
    parts = split(entry.payload)
    head = _EntryHead(entry.first_seq, entry.event_count, entry.log_id, entry.ts_ms, len(parts))
    parts[0] = msgspec.json.encode(head) + b"\n" + parts[0]
    return parts


def parts_of_entry(first: bytes) -> int:
    """Return the number of nodes of an entry."""
    return _head_of(first).parts


def entry_of(row: int, parts: list[bytes]) -> JournalEntry:
    """Return the entry of the journal from the values of its nodes. Raises StorageError."""
    head = _head_of(parts[0])
    payload = b"".join([parts[0].partition(b"\n")[2], *parts[1:]])
    return JournalEntry(row, head.first_seq, head.event_count, head.log_id, head.ts_ms, payload)


def split(data: bytes) -> list[bytes]:
    """Divide a value into parts that fit into a node: at least one."""
    return [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)] or [b""]


def _head_of(first: bytes) -> _EntryHead:
    return _decoded(first.partition(b"\n")[0], _EntryHead, "an entry of the journal")


def _decoded(data: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise StorageError(f"{what} cannot be read: {error}") from error
