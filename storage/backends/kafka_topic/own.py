"""The keys and values of our own record types, which Kafka does not have (pure).

Their numbers are far above those of Kafka's types. Kafka's readers of ``__consumer_offsets`` skip
types that they do not know.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from groupkeeper.coordinator.core.records import SavedOffset
from groupkeeper.protocol import offsets_topic_bytes as wire
from groupkeeper.protocol.offsets_topic import RecordError

RECORD: Final = 20_001
"""The type of the record of a topic, a config or the end of a partition. Its key has one name, and
its value is our JSON."""
LOG_END: Final = 20_002
"""The type of the record with the end of the shard's event log."""
EMPTY_GROUP: Final = 20_003
"""The type of the record of a group without metadata and without offsets."""

CHECKED: Final = 20_004
"""The type of a key that never has a value. ``storage check`` clears this key to measure how long
a transaction takes."""

NO_PROTOCOL_TYPE: Final = b"null"
"""Our own bytes after the value of a classic group whose protocol type is None. Kafka writes "" for
it."""

_UNSIGNED: Final = 1 << 64


class ShardLogEnd(msgspec.Struct, frozen=True):
    """Where the event log of one shard ends: its last event, and the number of the next one."""

    log_id: str
    """The id of the log that has the last event."""
    next_seq: int
    ts_ms: int
    """The time of the last event."""
    store: str = ""
    """The name of the store, with the shard (``event_log.store_names``). Up to 0.2.0.dev10 each
    shard had its own name, or "" in older versions."""


class _MoreOfOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """The values of an offset that Kafka's schema cannot hold."""

    expire_time_ms: int = -1
    """Kafka's schema has this field only in version 1, which has no leader epoch."""
    metadata: str | None = None
    """The metadata if it is longer than Kafka's strings, otherwise None."""
    topic_id: str | None = None
    """The topic id if it is no UUID, otherwise None."""


_encode: Final = msgspec.json.Encoder().encode
_decode_more: Final = msgspec.json.Decoder(_MoreOfOffset).decode
_NOTHING_MORE: Final = _MoreOfOffset()
_SURE_CHARS: Final = wire.MAX_TEXT_BYTES // 4
"""A text of at most this number of characters always fits into a string of Kafka."""


def record_key(name: str) -> bytes:
    """Return the key of a topic, a config or the end of a partition. It does not contain ``name``
    as a string of Kafka's protocol, because the name may be too long for that.
    """
    return RECORD.to_bytes(2, "big") + name.encode()


def empty_group_key(group_id: str) -> bytes:
    """Return the key for a group without any other key. It shows that the group exists."""
    return wire.key_bytes(EMPTY_GROUP, group_id)


LOG_END_KEY: Final = wire.key_bytes(LOG_END)


CHECKED_KEY: Final = wire.key_bytes(CHECKED)


def is_consumer_group(group_id: str, keys: Collection[bytes]) -> bool:
    """Return True if these are the keys of a consumer group."""
    return wire.key_bytes(wire.CONSUMER_GROUP, group_id) in keys


def signed(unsigned: int) -> int:
    """Return an unsigned hash of 64 bits as Kafka's int64."""
    return unsigned - _UNSIGNED if unsigned >= _UNSIGNED // 2 else unsigned


def unsigned(value: int) -> int:
    """Return Kafka's int64 as an unsigned hash of 64 bits."""
    return value % _UNSIGNED


class OffsetValues:
    """Encodes the offsets that one commit has in one topic. Their common values are encoded only
    once, because a commit may have 20,000 partitions.
    """

    def __init__(self, topic_id: str, commit_time_ms: int, expire_time_ms: int) -> None:
        is_uuid = wire.is_topic_id(topic_id)
        self._id = topic_id if is_uuid else ""
        self._other_id = None if is_uuid else topic_id
        self._commit_time_ms = commit_time_ms
        self._expire_time_ms = expire_time_ms
        self._end = self._end_with(None)

    def value(self, offset: int, leader_epoch: int, metadata: str) -> bytes:
        """Return the value of the message of one offset."""
        if len(metadata) > _SURE_CHARS and len(metadata.encode()) > wire.MAX_TEXT_BYTES:
            return wire.offset_value(offset, leader_epoch, "", self._end_with(metadata))
        return wire.offset_value(offset, leader_epoch, metadata, self._end)

    def _end_with(self, metadata: str | None) -> bytes:
        """Return the end of a value. It also has the values for which Kafka has no field."""
        ours = b""
        if self._expire_time_ms >= 0 or metadata is not None or self._other_id is not None:
            ours = _encode(_MoreOfOffset(self._expire_time_ms, metadata, self._other_id))
        return wire.offset_end(self._commit_time_ms, self._id, ours)


def offset_value(saved: SavedOffset) -> bytes:
    """Encode a committed offset as the value of a message."""
    values = OffsetValues(saved.topic_id, saved.commit_time_ms, saved.expire_time_ms)
    return values.value(saved.offset, saved.leader_epoch, saved.metadata)


def read_offset(data: bytes) -> SavedOffset:
    """Decode the value of an offset's message. Raises RecordError if it cannot be read."""
    found = wire.read_offset(data)
    more = _NOTHING_MORE
    if found.ours:
        try:
            more = _decode_more(found.ours)
        except msgspec.DecodeError as error:
            raise RecordError(f"the bytes of an offset cannot be read: {error}") from error
    return SavedOffset(
        found.offset,
        found.leader_epoch,
        found.metadata if more.metadata is None else more.metadata,
        found.commit_time_ms,
        more.expire_time_ms,
        found.topic_id if more.topic_id is None else more.topic_id,
    )


def encode_end(end: ShardLogEnd) -> bytes:
    """Encode the end of the log as the value of ``LOG_END_KEY``."""
    return _encode(end)
