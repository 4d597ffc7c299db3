"""The names of stores, in ``log_started`` and in the manifest (pure).

A store has the name of its first log. If several nodes use a store, each node has logs and sequence
numbers of its own. These logs form a chain: each one continues the log before it. The name of the
store is then followed by the node: ``9f3c.../2``. Files of versions up to 0.2.0.dev9 name no node.

In topics of Kafka each shard has such a chain: ``9f3c.../shard-7``. A group is in one shard, so the
chains of shards never have events of the same group. See docs/decisions/0041-store-names.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_BEFORE_NODE: Final = "/"
_SHARD: Final = "shard-"


class StoreName(NamedTuple):
    """The name of a store, and the node or the shard whose logs are meant."""

    store: str
    """"" if it is unknown."""
    node: str
    """The node: ``2``, or the shard: ``shard-7``. "" if the store has one chain of logs, or if an
    older version wrote the name.
    """

    def __str__(self) -> str:
        return f"{self.store}{_BEFORE_NODE}{self.node}" if self.node else self.store

    @property
    def is_of_shard(self) -> bool:
        """True if each shard of the store has its own logs."""
        return self.node.startswith(_SHARD)

    def may_be_one_chain(self, other: StoreName) -> bool:
        """Return True if a log with one of these names may continue a log with the other name.
        Return False if both stores or both nodes are known and differ.
        """
        if not (self.store and other.store):
            return True
        is_same_node = self.node == other.node or not (self.node and other.node)
        return self.store == other.store and is_same_node

    def place(self) -> tuple[int, str]:
        """Return a key that sorts the nodes or shards of a store by their numbers."""
        return len(self.node), self.node


def name_of_shard(store: str, shard: str) -> StoreName:
    """Return the name of the logs of one shard; ``shard`` is its number, or ``cluster``."""
    return StoreName(store, f"{_SHARD}{shard}")


def parse_store_name(text: str) -> StoreName:
    """Parse a name from an event or a manifest. Any text is accepted."""
    store, _, node = text.partition(_BEFORE_NODE)
    return StoreName(store, node)
