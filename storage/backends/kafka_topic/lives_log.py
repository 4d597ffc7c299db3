"""The lives of processes (their registrations with the store), in one partition (pure).

Every process reads the same messages in the same order and applies the same rules. So all processes
agree which lives had ended before a message. See docs/decisions/0039-kafka-topic.md.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec

from groupkeeper.storage.base import CLUSTER_SHARD, LeaseEpoch, ShardId, StorageError, StoreIdentity
from groupkeeper.storage.event_log.source import LogNote
from groupkeeper.storage.leases.lives import NodeLife

STORE_KEY: Final = b"store"
"""The key of the message that has the identity of the store."""
_LIFE: Final = b"life/"
_END: Final = b"end/"
_SEALED: Final = b"sealed/"


class StoreNote(msgspec.Struct, frozen=True):
    """The identity of the store. It is the first message of the log of lives."""

    format: int
    cluster_id: str
    shards: int


class LifeNote(msgspec.Struct, frozen=True):
    """A message of a life about itself: its beginning, a beat, or the shards that it acquires."""

    node_id: int
    life_id: str
    name: str
    counter: int
    """The number of messages of this life, including this one. The first message begins the life.
    """
    read_to: int
    """The writer had read all messages before this offset, and none of them ended its life."""
    shards: tuple[ShardId, ...] = ()
    """The shards that this message acquires. Their epoch is the offset of this message."""
    store: str = ""
    """The name that the event logs of all shards share; "" in messages of older versions."""


class EndNote(msgspec.Struct, frozen=True):
    """The end of a life. It counts only if the life had written nothing after its message with this
    ``counter``.
    """

    life_id: str
    counter: int


def log_name(shard: ShardId) -> str:
    """Return the name of the event log of a shard."""
    return "cluster" if shard == CLUSTER_SHARD else str(shard)


class SealedNote(msgspec.Struct, frozen=True):
    """What a process has recorded about the files of one event log. A life writes it without a
    transaction, so it may be written after the life has ended. The note of the newest life counts.
    """

    log: str
    """The name of the log (``log_name``)."""
    life_id: str
    began: int
    """The offset of the first message of the life."""
    log_ids: frozenset[str]
    """The ids of the logs that have files."""
    log_dir: str
    sealed_seq: int
    """The seq of the last event that is in a file."""
    begin_seq: int = 1
    """The seq of the first event that sealing could find."""

    @property
    def key(self) -> bytes:
        """The key of its message. A new life has a new key: compaction must not remove its note
        because an earlier life has written later."""
        return _SEALED + f"{self.log}/{self.life_id}".encode()

    def log_note(self, store: str = "") -> LogNote:
        """Return it as every event source returns such a note. ``store`` is the name of the log's
        store.
        """
        return LogNote(self.log_ids, self.log_dir, store, self.sealed_seq, self.begin_seq)


FORMAT: Final = 1


class Owner(NamedTuple):
    """The life that acquired a shard last, and its epoch."""

    life_id: str
    epoch: LeaseEpoch


class LivesLog:
    """The lives, and the owners of shards, after all messages up to ``position``."""

    def __init__(self) -> None:
        self.position = 0
        """The offset of the next message."""
        self.identity: StoreIdentity | None = None
        self.format = FORMAT
        self.store = ""
        """The name that the event logs of all shards share; "" if no life has recorded one."""
        self.owners: dict[ShardId, Owner] = {}
        self.sealed: dict[str, SealedNote] = {}
        """What the newest life has recorded about the files of each event log."""
        self._lives: dict[str, NodeLife] = {}
        self._ended: dict[str, int] = {}
        """The offset of the message that ended each life."""

    def living(self) -> list[NodeLife]:
        """Return the lives that have not ended."""
        return [*self._lives.values()]

    def goes_on(self, life_id: str) -> bool:
        """Return True if this life has begun and not ended."""
        return life_id in self._lives

    def apply(self, offset: int, key: bytes, value: bytes | None) -> None:
        """Apply the next message. Raises StorageError if it cannot be read."""
        try:
            if key == STORE_KEY and value is not None:
                self._store(msgspec.json.decode(value, type=StoreNote))
            elif key.startswith(_LIFE) and value is not None:
                self._life(offset, msgspec.json.decode(value, type=LifeNote))
            elif key.startswith(_END) and value is not None:
                self._end(offset, msgspec.json.decode(value, type=EndNote))
            elif key.startswith(_SEALED) and value is not None:
                self._sealed(msgspec.json.decode(value, type=SealedNote))
        except msgspec.DecodeError as error:
            raise StorageError(f"message {offset} cannot be read: {error}") from error

    def _store(self, note: StoreNote) -> None:
        if self.identity is None:
            self.identity = StoreIdentity(note.cluster_id, note.shards)
            self.format = note.format

    def _life(self, offset: int, note: LifeNote) -> None:
        life_id = note.life_id
        if life_id in self._ended:
            if note.read_to <= self._ended[life_id]:
                return  # written without knowledge of the end, so this message does not count
            # The life wrote another message before that end, so the end does not count. Compaction
            # has removed that message.
            del self._ended[life_id]
        is_first = note.counter == 1
        if is_first and life_id not in self._lives and self._lives:
            self._ended[life_id] = offset  # a second life is refused while another has not ended
            return
        self._lives[life_id] = NodeLife(note.node_id, life_id, note.name, note.counter)
        self.store = note.store or self.store
        for shard in note.shards:
            self.owners[shard] = Owner(life_id, offset)

    def _end(self, offset: int, note: EndNote) -> None:
        life = self._lives.get(note.life_id)
        if life is not None and life.counter > note.counter:
            return
        if note.life_id not in self._ended:
            self._ended[note.life_id] = offset
            self._lives.pop(note.life_id, None)

    def _sealed(self, note: SealedNote) -> None:
        known = self.sealed.get(note.log)
        if known is None or known.began <= note.began:
            self.sealed[note.log] = note


def store_message(identity: StoreIdentity) -> tuple[bytes, bytes]:
    """Return the key and the value of the message that has the identity of a store."""
    return STORE_KEY, msgspec.json.encode(StoreNote(FORMAT, *identity))


def life_message(
    life: NodeLife, read_to: int, shards: Collection[ShardId] = (), store: str = ""
) -> tuple[bytes, bytes]:
    """Return a message of a life. ``life.counter`` already counts this message."""
    note = LifeNote(*life, read_to, tuple(shards), store)
    return _LIFE + life.life_id.encode(), msgspec.json.encode(note)


def end_message(life_id: str, counter: int) -> tuple[bytes, bytes]:
    """Return the message that ends a life that has written nothing since ``counter``.

    The key contains the counter. So compaction never replaces an end that counts by an end that
    does not count.
    """
    key = b"%b%b/%d" % (_END, life_id.encode(), counter)
    return key, msgspec.json.encode(EndNote(life_id, counter))
