"""Writes and reads the records of ``__consumer_offsets`` by plain struct code, for a store.

``protocol.offsets_topic`` reads every version that Kafka ever wrote. This module writes the newest
versions of Kafka 4.3: offsets, classic groups and consumer groups. It reads back what it writes.

Kafka's schemas have no field for a few values of groupkeeper. They are in a tagged field, ``OURS``,
after Kafka's own fields. Kafka's readers skip tags that they do not know. In the classes of values
here, ``ours`` is the content of this tagged field, or b"" if there is none.

This file is long because each kind of value is written and read here, side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.offsets_topic import MemberValue, RecordError
from groupkeeper.protocol.packing import (
    MAX_STRING_BYTES,
    Odd,
    classic_string,
    compact_bytes,
    compact_string,
    printed_topic_id,
    raw_topic_id,
    varint,
)
from groupkeeper.protocol.reader import Input
from groupkeeper.protocol.spans import written_tags

OFFSET: Final = 1
OFFSET_TYPES: Final = frozenset({0, OFFSET})
"""The types of records that have a committed offset. Only their keys end with a partition number.
"""
GROUP: Final = 2
CONSUMER_GROUP: Final = 3
CONSUMER_MEMBER: Final = 5
CONSUMER_TARGET: Final = 6
CONSUMER_MEMBER_TARGET: Final = 7
CONSUMER_CURRENT: Final = 8
CONSUMER_PATTERN: Final = 16

OURS: Final = 10_000
"""The tag of the bytes that only groupkeeper reads."""
MAX_TEXT_BYTES: Final = MAX_STRING_BYTES
"""The longest string that Kafka's schemas accept."""
_MAX_ELEMENTS: Final = 10_000_000

_PARTITION: Final = Struct(">i")
_TYPE: Final = Struct(">h")
_OFFSET_HEAD: Final = Struct(">hqi")
_INT64: Final = Struct(">q")
_NULL: Final = b"\x00"
_NO_TAGS: Final = b"\x00"

Partitions: TypeAlias = Mapping[str, Sequence[int]]
"""Topic id -> partitions."""
PartitionEpochs: TypeAlias = Mapping[str, Sequence[tuple[int, int]]]
"""Topic id -> pairs of (partition, epoch)."""


class OffsetBytes(NamedTuple):
    """The fields in the value of a record with a committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int
    topic_id: str
    ours: bytes


class GroupBytes(NamedTuple):
    """The fields in the value of a record with the state of a classic group."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_time_ms: int
    members: Sequence[MemberValue]
    ours: bytes


class MemberBytes(NamedTuple):
    """The value of a member of a consumer group. The member's assignment is in other records."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: Sequence[str]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: tuple[int, Sequence[tuple[str, bytes]]] | None
    """The session timeout in milliseconds and the protocols of a classic member. None for a member
    that uses the consumer protocol.
    """


class CurrentBytes(NamedTuple):
    """The current assignment of a member of a consumer group."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: PartitionEpochs
    revoking: PartitionEpochs


_EMPTY: Final = compact_string("")


# --- keys -----------------------------------------------------------------------------------------


def key_bytes(record_type: int, *names: str) -> bytes:
    """Return a key of a type with these names: the group, or the group and a member or a
    pattern.
    """
    return _TYPE.pack(record_type) + b"".join(map(classic_string, names))


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """Return the encoded key of the record that has the committed offset of a partition."""
    return partition_key(key_bytes(OFFSET, group, topic), partition)


def partition_key(topic_key: bytes, partition: int) -> bytes:
    """Do the same as ``offset_key``, with the beginning of the key: ``topic_key`` has the group and
    the topic.
    """
    return topic_key + _PARTITION.pack(partition)


def read_key(data: bytes) -> tuple[int, list[str], int]:
    """Return the type of a key, its names, and the partition. The partition is 0 for a type that is
    not in ``OFFSET_TYPES``. Raises RecordError if the key cannot be read.
    """

    def read(source: Input) -> tuple[int, list[str], int]:
        record_type = _fixed(source, _TYPE)
        end = source.end - (_PARTITION.size if record_type in OFFSET_TYPES else 0)
        names = []
        while source.position < end:
            names.append(source.text(_fixed(source, _TYPE)))
        number = _fixed(source, _PARTITION) if record_type in OFFSET_TYPES else 0
        return record_type, names, number

    return _read(data, "key", read)


def is_topic_id(text: str) -> bool:
    """Return True if the text is a topic id in Kafka's printed form, or ""."""
    if not text:
        return True
    try:
        return printed_topic_id(raw_topic_id(text)) == text
    # binascii.Error is a ValueError, and text beyond ASCII raises ValueError
    except (Odd, ValueError):
        return False


# --- values ---------------------------------------------------------------------------------------


def offset_value(offset: int, leader_epoch: int, metadata: str, end: bytes) -> bytes:
    """Return the value of an offset, version 4. ``end`` is what ``offset_end`` returns."""
    text = compact_string(metadata) if metadata else _EMPTY
    return _OFFSET_HEAD.pack(4, offset, leader_epoch) + text + end


def offset_end(commit_time_ms: int, topic_id: str, ours: bytes) -> bytes:
    """Return the end of the value of an offset, which all partitions of a topic share in a commit.
    ``topic_id`` is in Kafka's printed form, or "".
    """
    tags = [(0, raw_topic_id(topic_id))] if topic_id else []
    return _INT64.pack(commit_time_ms) + _tags(tags, ours)


def read_offset(data: bytes) -> OffsetBytes:
    """Read the value of an offset. Raises RecordError if it cannot be read."""

    def read(source: Input) -> OffsetBytes:
        _version(source, 4)
        offset, leader_epoch = _fixed(source, _INT64), _fixed(source, _PARTITION)
        metadata, commit_time_ms = _text(source), _fixed(source, _INT64)
        tags = _read_tags(source)
        topic_id = printed_topic_id(tags[0]) if 0 in tags else ""
        return OffsetBytes(
            offset, leader_epoch, metadata, commit_time_ms, topic_id, tags.get(OURS, b"")
        )

    return _read(data, "offset", read)


def group_value(value: GroupBytes) -> bytes:
    """Return the value of a classic group, version 4."""
    parts = [
        _TYPE.pack(4),
        compact_string(value.protocol_type),
        _PARTITION.pack(value.generation),
        _nullable(value.protocol),
        _nullable(value.leader),
        _INT64.pack(value.state_time_ms),
        varint(len(value.members) + 1),
    ]
    for member in value.members:
        parts += (
            compact_string(member.member_id),
            _nullable(member.group_instance_id),
            compact_string(member.client_id),
            compact_string(member.client_host),
            _PARTITION.pack(member.rebalance_timeout),
            _PARTITION.pack(member.session_timeout),
            compact_bytes(member.subscription),
            compact_bytes(member.assignment),
            _NO_TAGS,
        )
    return b"".join((*parts, _tags([], value.ours)))


def read_group(data: bytes) -> GroupBytes:
    """Read the value of a classic group. Raises RecordError if it cannot be read."""

    def member(source: Input) -> MemberValue:
        member_id, instance_id = _text(source), _nullable_text(source)
        client_id, client_host = _text(source), _text(source)
        rebalance, session = _fixed(source, _PARTITION), _fixed(source, _PARTITION)
        subscription, assignment = _raw(source), _raw(source)
        _read_tags(source)
        return MemberValue(
            member_id,
            client_id,
            client_host,
            session,
            subscription,
            assignment,
            instance_id,
            rebalance,
        )

    def read(source: Input) -> GroupBytes:
        _version(source, 4)
        protocol_type, generation = _text(source), _fixed(source, _PARTITION)
        protocol, leader = _nullable_text(source), _nullable_text(source)
        state_time_ms = _fixed(source, _INT64)
        members = _array(source, member)
        ours = _read_tags(source).get(OURS, b"")
        return GroupBytes(protocol_type, generation, protocol, leader, state_time_ms, members, ours)

    return _read(data, "group", read)


def epoch_value(epoch: int, tagged: int) -> bytes:
    """Return the value of a consumer group, or of its target: an epoch and a tagged int64.

    For a group, ``tagged`` is the hash of the topics. For a target, it is the time of the target.
    """
    return _TYPE.pack(0) + _PARTITION.pack(epoch) + _tags([(0, _INT64.pack(tagged))], b"")


def read_epoch(data: bytes) -> tuple[int, int]:
    """Read a value that ``epoch_value`` wrote. Return the epoch and the tagged int64, or 0 without
    one. Raises RecordError if the value cannot be read.
    """

    def read(source: Input) -> tuple[int, int]:
        _version(source, 0)
        epoch = _fixed(source, _PARTITION)
        tags = _read_tags(source)
        return epoch, _INT64.unpack(tags[0])[0] if 0 in tags else 0

    return _read(data, "epoch", read)


def member_value(value: MemberBytes) -> bytes:
    """Return the value of a member of a consumer group."""
    tags = []
    if value.classic is not None:
        timeout_ms, protocols = value.classic
        classic = [_PARTITION.pack(timeout_ms), varint(len(protocols) + 1)]
        for name, metadata in protocols:
            classic += (compact_string(name), compact_bytes(metadata), _NO_TAGS)
        # Kafka writes a nullable struct as a byte (1: not null), then its fields.
        tags.append((0, b"".join((b"\x01", *classic, _NO_TAGS))))
    return b"".join(
        (
            _TYPE.pack(0),
            _nullable(value.instance_id),
            _nullable(value.rack_id),
            compact_string(value.client_id),
            compact_string(value.client_host),
            _texts(value.topic_names),
            _nullable(value.topic_regex),
            _PARTITION.pack(value.rebalance_timeout_ms),
            _nullable(value.server_assignor),
            _tags(tags, b""),
        )
    )


def read_member(data: bytes) -> MemberBytes:
    """Read the value of a member of a consumer group. Raises RecordError if it cannot be read."""

    def protocol(source: Input) -> tuple[str, bytes]:
        found = _text(source), _raw(source)
        _read_tags(source)
        return found

    def read(source: Input) -> MemberBytes:
        _version(source, 0)
        instance_id, rack_id = _nullable_text(source), _nullable_text(source)
        client_id, client_host = _text(source), _text(source)
        names, regex = _array(source, _text), _nullable_text(source)
        rebalance_timeout_ms, assignor = _fixed(source, _PARTITION), _nullable_text(source)
        tags, classic = _read_tags(source), None
        if 0 in tags:
            inner = Input(tags[0], 1, _MAX_ELEMENTS)
            classic = _fixed(inner, _PARTITION), _array(inner, protocol)
        return MemberBytes(
            instance_id,
            rack_id,
            client_id,
            client_host,
            names,
            regex,
            rebalance_timeout_ms,
            assignor,
            classic,
        )

    return _read(data, "member", read)


def target_value(partitions: Partitions) -> bytes:
    """Return the value of the target of a member: the partitions that it should get."""
    parts = [_TYPE.pack(0), varint(len(partitions) + 1)]
    for topic_id, numbers in partitions.items():
        parts += (raw_topic_id(topic_id), _numbers(numbers), _NO_TAGS)
    return b"".join((*parts, _NO_TAGS))


def read_target(data: bytes) -> dict[str, tuple[int, ...]]:
    """Read the target of a member. Return topic id -> partitions. Raises RecordError if it cannot
    be read.
    """

    def topic(source: Input) -> tuple[str, tuple[int, ...]]:
        topic_id = printed_topic_id(source.take(16))
        numbers = tuple(_array(source, _number))
        _read_tags(source)
        return topic_id, numbers

    def read(source: Input) -> dict[str, tuple[int, ...]]:
        _version(source, 0)
        return dict(_array(source, topic))

    return _read(data, "target", read)


def current_value(value: CurrentBytes) -> bytes:
    """Return the value of the current assignment of a member."""
    head = (_PARTITION.pack(value.epoch), _PARTITION.pack(value.previous_epoch))
    state = bytes((value.state,))
    topics = (*_owned(value.assigned), *_owned(value.revoking))
    return b"".join((_TYPE.pack(0), *head, state, *topics, _NO_TAGS))


def read_current(data: bytes) -> CurrentBytes:
    """Read the current assignment of a member. Raises RecordError if it cannot be read."""

    def topic(source: Input) -> tuple[str, tuple[tuple[int, int], ...]]:
        topic_id = printed_topic_id(source.take(16))
        numbers = _array(source, _number)
        tags = _read_tags(source)
        epochs = _array(Input(tags[0], 0, _MAX_ELEMENTS), _number)
        return topic_id, tuple(zip(numbers, epochs, strict=True))

    def read(source: Input) -> CurrentBytes:
        _version(source, 0)
        epoch, previous_epoch = _number(source), _number(source)
        (state,) = source.take(1)
        assigned, revoking = dict(_array(source, topic)), dict(_array(source, topic))
        return CurrentBytes(epoch, previous_epoch, state, assigned, revoking)

    return _read(data, "assignment", read)


def pattern_value(topics: Sequence[str], version: int, time_ms: int) -> bytes:
    """Return the value of a pattern: the topics that it matches. ``version`` is the version of the
    ``TopicImage`` in which the topics were found, and ``time_ms`` is when they were found.
    """
    return b"".join(
        (_TYPE.pack(0), _texts(topics), _INT64.pack(version), _INT64.pack(time_ms), _NO_TAGS)
    )


def read_pattern(data: bytes) -> tuple[list[str], int, int]:
    """Return the topics, version and time of a value that ``pattern_value`` wrote. Raises
    RecordError if it cannot be read.
    """

    def read(source: Input) -> tuple[list[str], int, int]:
        _version(source, 0)
        return _array(source, _text), _fixed(source, _INT64), _fixed(source, _INT64)

    return _read(data, "pattern", read)


# --- parts ----------------------------------------------------------------------------------------


def _nullable(text: str | None) -> bytes:
    return _NULL if text is None else compact_string(text)


def _texts(texts: Sequence[str]) -> bytes:
    return varint(len(texts) + 1) + b"".join(map(compact_string, texts))


def _numbers(numbers: Sequence[int]) -> bytes:
    return varint(len(numbers) + 1) + b"".join(map(_PARTITION.pack, numbers))


def _owned(partitions: PartitionEpochs) -> Iterable[bytes]:
    yield varint(len(partitions) + 1)
    for topic_id, pairs in partitions.items():
        epochs = _numbers([epoch for _, epoch in pairs])
        yield raw_topic_id(topic_id) + _numbers([number for number, _ in pairs])
        yield _tags([(0, epochs)], b"")


def _tags(tags: Sequence[tuple[int, bytes]], ours: bytes) -> bytes:
    """Return the tagged fields, in the order of their tags. ``ours`` is left out if it is empty."""
    return written_tags([*tags, (OURS, ours)] if ours else tags)


_T = TypeVar("_T")


def _read(data: bytes, what: str, read: Callable[[Input], _T]) -> _T:
    try:
        return read(Input(data, 0, _MAX_ELEMENTS))
    except (ProtocolError, StructError, IndexError, KeyError, ValueError) as error:
        raise RecordError(f"the bytes of a {what} cannot be read: {error!r}") from error


def _version(source: Input, wanted: int) -> None:
    version = _fixed(source, _TYPE)
    if version != wanted:
        raise RecordError(f"a value of version {version}; this groupkeeper reads {wanted}")


def _fixed(source: Input, layout: Struct) -> Any:
    (value,) = layout.unpack_from(source.data, source.position)
    source.position += layout.size
    return value


def _number(source: Input) -> int:
    number: int = _fixed(source, _PARTITION)
    return number


def _text(source: Input) -> str:
    return source.text(source.unsigned_varint() - 1)


def _nullable_text(source: Input) -> str | None:
    size = source.unsigned_varint()
    return source.text(size - 1) if size else None


def _raw(source: Input) -> bytes:
    return source.take(source.unsigned_varint() - 1)


def _array(source: Input, element: Callable[[Input], _T]) -> list[_T]:
    count = source.unsigned_varint() - 1
    source.take_elements(count, 1)
    return [element(source) for _ in range(count)]


def _read_tags(source: Input) -> dict[int, bytes]:
    tags = {}
    for _ in range(source.unsigned_varint()):
        tag = source.unsigned_varint()
        tags[tag] = source.take(source.unsigned_varint())
    return tags
