"""The znodes of a store, and what they contain (pure).

A *life* is the registration of a process with the store. The other words are explained in
``storage.backends.journal.driver``.

Below ``/groupkeeper``::

    (itself)                 the identity of the store
    nodes/LIFE               a life that has not ended. The version of the znode counts its beats
    lives/LIFE/ROW           an entry of the journal of a life. ROW.N are further parts of it
    ends/NODE_ID             the end of the log of a node
    shards                   the owners and epochs of all shards
    groups/SHARD/NAME        the folded value of a group. Below it are its parts, if it is large
    keyed/SHARD/NAME         the folded value of a topic, a config or the end of a partition
    events/TIME-SEQ-ID       events, compressed
    sealed/NODE_ID           where the files of events of a node are, and which logs they have
"""

from __future__ import annotations

from typing import Final, NamedTuple

from groupkeeper.storage.backends.zookeeper.names import node_name
from groupkeeper.storage.base import ShardId

ROOT: Final = "groupkeeper"
"""The znode of the store, below the chroot."""

PART_BYTES: Final = 900 * 1024
"""The largest value of one znode. A server accepts less than 1 MiB in one request."""


class StoreNodes(NamedTuple):
    """Computes the paths of the znodes of a store, which are below ``root``."""

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

    @property
    def sealed(self) -> str:
        return f"{self.root}/sealed"

    def node(self, life_id: str) -> str:
        """Return the path of the znode that exists until a life ends. A life is the registration of
        a process.
        """
        return f"{self.nodes}/{life_id}"

    def life(self, life_id: str) -> str:
        """Return the path of the znode with the journal of a life."""
        return f"{self.lives}/{life_id}"

    def entry(self, life_id: str, row: int, part: int = 0) -> str:
        """Return the path of a journal entry, or of a further part of it."""
        return f"{self.lives}/{life_id}/{row:010d}" + (f".{part}" if part else "")

    def end(self, node_id: int) -> str:
        """Return the path of the end of the log that the groupkeeper node ``node_id`` writes."""
        return f"{self.ends}/{node_id}"

    def values(self, shard: ShardId, is_group: bool) -> str:
        """Return the path of the znode below which the values of a shard are."""
        return f"{self.root}/{'groups' if is_group else 'keyed'}/{shard}"

    def value(self, shard: ShardId, is_group: bool, key: str) -> str:
        """Return the path of the znode with the value of a group or of a keyed record."""
        return f"{self.values(shard, is_group)}/{node_name(key)}"

    def all_parents(self) -> tuple[str, ...]:
        """Return the paths of the znodes that every store has."""
        return (
            self.nodes,
            self.lives,
            self.ends,
            self.events,
            self.sealed,
            self.shards,
            f"{self.root}/groups",
            f"{self.root}/keyed",
        )


def row_of(name: str) -> int:
    """Return the number of a journal entry, from the name of its znode or of a part of it."""
    return int(name.partition(".")[0])


def is_entry(name: str) -> bool:
    """Return True if this is the name of an entry's first znode, not of a further part."""
    return "." not in name
