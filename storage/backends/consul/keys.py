"""The keys of a store in Consul, including those of the parts of large values (pure).

A *life* is the registration of a process with the store. The other words are explained in
``storage.backends.journal.driver``.

Below the prefix of the store::

    store                            the identity of the store
    turn                             changes whenever a life begins
    lives/LIFE                       a life that has not ended. It never changes
    beats/LIFE                       changes with each beat. Its index counts the beats
    ends/NODE_ID                     the end of the log of a node
    shards                           the owners and epochs of all shards
    folds/LIFE                       exists until the journal of a life is folded, and the life's
                                     shards are free. It changes with each transaction of a fold
    journal/LIFE/ROW                 an entry of the journal. ROW.N are further parts of it
    groups/SHARD/NAME                the folded value of a group
    keyed/SHARD/NAME                 the folded value of a topic, a config or the end of a partition
    parts/groups/SHARD/NAME/V.N      part N of a large value. V names one version of the value
    events/TIME-SEQ-ID               events, compressed
    sealed/NODE_ID                   where the files of events of a node are, and which logs they
                                     have
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from groupkeeper.storage.backends.consul.names import UNUSUAL, is_hashed, key_name
from groupkeeper.storage.backends.journal.driver import Value
from groupkeeper.storage.backends.key_value.escaping import escaped_name, plain_name
from groupkeeper.storage.base import ShardId

PART_BYTES: Final = 350_000
"""The longest value that is written to one key. Consul accepts 512 KiB, but a transaction has room
for 384 KiB: its body has values in base64."""

ROW_DIGITS: Final = 10

_NAME: Final = b"name "
"""The beginning of a value whose key has a hash instead of the name. The name follows, and then a
line end."""


class StoreKeys(NamedTuple):
    """Computes the names of the keys under which a store has its data in Consul."""

    prefix: str

    @property
    def identity(self) -> str:
        return f"{self.prefix}/store"

    @property
    def turn(self) -> str:
        return f"{self.prefix}/turn"

    @property
    def shards(self) -> str:
        return f"{self.prefix}/shards"

    @property
    def lives(self) -> str:
        return f"{self.prefix}/lives/"

    @property
    def beats(self) -> str:
        return f"{self.prefix}/beats/"

    @property
    def folds(self) -> str:
        return f"{self.prefix}/folds/"

    @property
    def events(self) -> str:
        return f"{self.prefix}/events/"

    @property
    def ends(self) -> str:
        return f"{self.prefix}/ends/"

    @property
    def sealed(self) -> str:
        return f"{self.prefix}/sealed/"

    @property
    def parts(self) -> str:
        return f"{self.prefix}/parts/"

    def life(self, life_id: str) -> str:
        """Return the key that exists until a life ends."""
        return self.lives + life_id

    def beat(self, life_id: str) -> str:
        """Return the key that each beat of a life changes."""
        return self.beats + life_id

    def fold(self, life_id: str) -> str:
        """Return the key that each fold of the journal of a life changes."""
        return self.folds + life_id

    def end(self, node_id: int) -> str:
        """Return the key of the end of the log that the groupkeeper node ``node_id`` writes."""
        return f"{self.ends}{node_id}"

    def journal(self, life_id: str) -> str:
        """Return the beginning of the keys of all entries of a life."""
        return f"{self.prefix}/journal/{life_id}/"

    def entry(self, life_id: str, row: int, part: int = 0) -> str:
        """Return the key of an entry, or of a further part of it."""
        return f"{self.journal(life_id)}{row:0{ROW_DIGITS}d}" + (f".{part}" if part else "")

    def values(self, shard: ShardId, is_group: bool) -> str:
        """Return the beginning of the keys of all values of a shard."""
        return f"{self.prefix}/{'groups' if is_group else 'keyed'}/{shard}/"

    def value(self, shard: ShardId, is_group: bool, name: str) -> str:
        """Return the key of the value of a group or of a keyed record."""
        return self.values(shard, is_group) + key_name(name)

    def parts_of(self, key: str) -> str:
        """Return the beginning of the keys of all parts of a value."""
        return f"{self.parts}{key.removeprefix(self.prefix + '/')}/"

    def whole_of(self, part: str) -> tuple[str, str]:
        """Return the key of the value to which a part belongs, and the name of its version."""
        whole, _, name = part.removeprefix(self.parts).rpartition("/")
        return f"{self.prefix}/{whole}", name.partition(".")[0]

    def rows(self, life_id: str, after: int, last: int) -> Iterator[str]:
        """Yield prefixes of keys. Together they match all entries after row ``after`` up to row
        ``last``.

        One operation deletes all entries with a prefix, so nobody has to list them. Example with
        rows of four digits: up to row 123 the prefixes are 00 (rows 0 to 99), 010, 011, 0120, 0121,
        0122 and 0123. The prefixes may also match earlier entries, but no later one.
        """
        digits = f"{last + 1:0{ROW_DIGITS}d}"
        for at, digit in enumerate(digits):
            for lower in range(int(digit)):
                begin = f"{digits[:at]}{lower}"
                if int(begin.ljust(ROW_DIGITS, "9")) > after:
                    yield self.journal(life_id) + begin


def is_entry(key: str) -> bool:
    """Return True if this is the key of an entry, and not the key of a further part of it."""
    return "." not in key.rpartition("/")[2]


def row_of(key: str) -> int:
    """Return the number of an entry, from its key or from the key of a further part."""
    return int(key.rpartition("/")[2].partition(".")[0])


def stored_value(key: str, name: str, data: bytes) -> bytes:
    """Return the bytes to store for a value. They begin with the name if the key has only a hash of
    the name.
    """
    if is_hashed(key.rpartition("/")[2]):
        return _NAME + escaped_name(name, UNUSUAL).encode() + b"\n" + data
    return data


def value_of(shard: ShardId, is_group: bool, key: str, stored: bytes) -> Value:
    """Return the value for the bytes that are stored under a key."""
    last = key.rpartition("/")[2]
    if is_hashed(last):
        line, _, stored = stored.partition(b"\n")
        last = line.removeprefix(_NAME).decode()
    return Value(shard, is_group, plain_name(last), stored)
