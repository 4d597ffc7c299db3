"""The records of Kafka's ``__consumer_offsets``: committed offsets and classic groups.

kio has no schemas for them. So they are kio entities here, field by field from Kafka's own
definitions (group-coordinator/src/main/resources/common/message/*.json of 4.3.1), each field with
its versions. ``protocol.reader`` reads the bytes, so invalid bytes do no harm.

Key and value both begin with an int16. In a key it is the record's type (CoordinatorRecordType;
before Kafka 4.0 it was called the key's version). In a value it is the value's version. A record
without a value deletes what its key names.

The records of consumer, share and streams groups are not read: their key becomes an ``OtherKey``.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from kio.serial import entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64

from groupkeeper.protocol.codec import uuid_to_topic_id
from groupkeeper.protocol.consumer_protocol import ConsumerProtocolError, decode_assignment
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.fields import EntityClass
from groupkeeper.protocol.reader import read_entity

MAX_ELEMENTS: Final = 1_000_000
"""The largest number of members and tags of one record. The broker's message.max.bytes limits the
size of a record."""

CONSUMER_GROUP_TYPES: Final = frozenset({3, 4, 5, 6, 7, 8, 16})
"""Record types of groups of the consumer protocol (KIP-848)."""

_VERSION: Final = struct.Struct(">h")


class RecordError(Exception):
    """The bytes are not a valid key or value of this topic. The message is one sentence."""


# --- the definitions ------------------------------------------------------------------------------


class _Field(NamedTuple):
    """One field of a message in Kafka's JSON definitions. The versions from ``first`` to ``last``
    have it.
    """

    name: str
    kind: Any
    wire: str | None
    first: int = 0
    last: int = 32_767
    default: Any = MISSING
    tag: int | None = None


class _Message(NamedTuple):
    """The definition of a key or value of this topic: its fields, with their versions."""

    name: str
    versions: range
    first_flexible: int
    fields: tuple[_Field, ...]

    def type(self, version: int, kind: EntityType = EntityType.data) -> EntityClass:
        """Return a class in kio's form that has the fields of a version."""
        members: list[Any] = []
        for each in self.fields:
            if not each.first <= version <= each.last:
                continue
            annotation: Any = each.kind
            metadata: dict[str, Any] = {} if each.wire is None else {"kafka_type": each.wire}
            if isinstance(each.kind, _Message):
                element = each.kind.type(version, EntityType.nested)
                annotation = tuple[element, ...]  # type: ignore[valid-type]
            if each.tag is not None:
                metadata["tag"] = each.tag
            members.append((each.name, annotation, field(metadata=metadata, default=each.default)))
        return make_dataclass(
            f"{self.name}V{version}",
            members,
            namespace={
                "__type__": kind,
                "__version__": i16(version),
                "__flexible__": version >= self.first_flexible,
            },
            frozen=True,
            slots=True,
            kw_only=True,
        )


_NEVER: Final = 32_767
"""A value of ``first_flexible``: no version is flexible."""

_OFFSET_COMMIT_KEY: Final = _Message(
    "OffsetCommitKey",
    range(2),  # 0 is LegacyOffsetCommitKey, from before Kafka 0.9
    _NEVER,
    (
        _Field("group", str, "string"),
        _Field("topic", str, "string"),
        _Field("partition", i32, "int32"),
    ),
)

_OFFSET_COMMIT_VALUE: Final = _Message(
    "OffsetCommitValue",
    range(5),
    4,
    (
        _Field("offset", i64, "int64"),
        _Field("leader_epoch", i32, "int32", first=3, default=i32(-1)),
        _Field("metadata", str, "string"),
        _Field("commit_timestamp", i64, "int64"),
        _Field("expire_timestamp", i64, "int64", first=1, last=1, default=i64(-1)),
        _Field("topic_id", UUID | None, "uuid", first=4, default=None, tag=0),
    ),
)

_GROUP_METADATA_KEY: Final = _Message(
    "GroupMetadataKey", range(2, 3), _NEVER, (_Field("group", str, "string"),)
)

_MEMBER_METADATA: Final = _Message(
    "MemberMetadata",
    range(5),
    4,
    (
        _Field("member_id", str, "string"),
        _Field("group_instance_id", str | None, "string", first=3, default=None),
        _Field("client_id", str, "string"),
        _Field("client_host", str, "string"),
        _Field("rebalance_timeout", i32, "int32", first=1, default=i32(-1)),
        _Field("session_timeout", i32, "int32"),
        _Field("subscription", bytes, "bytes"),
        _Field("assignment", bytes, "bytes"),
    ),
)

_GROUP_METADATA_VALUE: Final = _Message(
    "GroupMetadataValue",
    range(5),
    4,
    (
        _Field("protocol_type", str, "string"),
        _Field("generation", i32, "int32"),
        _Field("protocol", str | None, "string"),
        _Field("leader", str | None, "string"),
        _Field("current_state_timestamp", i64, "int64", first=2, default=i64(-1)),
        _Field("members", _MEMBER_METADATA, None),
    ),
)


def _types(*messages: _Message) -> Mapping[tuple[str, int], EntityClass]:
    return {
        (message.name, version): message.type(version)
        for message in messages
        for version in message.versions
    }


ENTITIES: Final = _types(
    _OFFSET_COMMIT_KEY, _OFFSET_COMMIT_VALUE, _GROUP_METADATA_KEY, _GROUP_METADATA_VALUE
)
"""(name of the definition, version) -> the class in kio's form."""


# --- what readers get: one class for all versions -------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """The key of a committed offset. A record without a value deletes the offset."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The key of a classic group. A record without a value deletes the group."""

    group: str


@dataclass(frozen=True, slots=True)
class OtherKey:
    """The key of a record of another kind of group, or of a type newer than Kafka 4.3."""

    record_type: int
    """The number at the start of the key."""
    group: str = ""
    """The group id, if it is a group of the consumer protocol; else ""."""


Key: TypeAlias = OffsetKey | GroupKey | OtherKey


@dataclass(frozen=True, slots=True)
class OffsetValue:
    """A committed offset. Fields that its version does not have are -1 or "". Times are
    milliseconds.
    """

    offset: int
    metadata: str
    commit_timestamp: int
    leader_epoch: int = -1
    expire_timestamp: int = -1
    topic_id: str = ""
    """In Kafka's printed form."""


@dataclass(frozen=True, slots=True)
class MemberValue:
    """A member of a classic group. Times are milliseconds. Fields that the version does not have
    are -1 or None.
    """

    member_id: str
    client_id: str
    client_host: str
    session_timeout: int
    subscription: bytes
    assignment: bytes
    group_instance_id: str | None = None
    rebalance_timeout: int = -1

    def assigned(self) -> dict[str, list[int]] | None:
        """Return the member's partitions by topic. Return None if the bytes are not a consumer's
        assignment.
        """
        try:
            return decode_assignment(self.assignment).partitions if self.assignment else {}
        except ConsumerProtocolError:
            return None


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A classic group. Without members it is Empty. ``current_state_timestamp`` is in milliseconds,
    or -1 if the version does not have it.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[MemberValue, ...]
    current_state_timestamp: int = -1


def decode_key(data: bytes) -> Key:
    """Decode the key of a record. A key of an unknown type becomes an ``OtherKey``.

    Raises RecordError if the bytes are invalid.
    """
    number = _number(data)
    if number in _OFFSET_COMMIT_KEY.versions:
        return _plain(OffsetKey, _read(_OFFSET_COMMIT_KEY, number, data))
    if number in _GROUP_METADATA_KEY.versions:
        return _plain(GroupKey, _read(_GROUP_METADATA_KEY, number, data))
    if number in CONSUMER_GROUP_TYPES:
        # the keys of these types all begin with the group, like GroupMetadataKey
        return OtherKey(number, _read_as(_GROUP_METADATA_KEY, 2, data).group)
    return OtherKey(number)


def decode_offset(data: bytes) -> OffsetValue:
    """Decode the value of an ``OffsetKey``.

    Raises RecordError if the bytes are invalid, or their version is above 4.
    """
    entity = _read(_OFFSET_COMMIT_VALUE, _number(data), data)
    topic_id = uuid_to_topic_id(getattr(entity, "topic_id", None))
    return _plain(OffsetValue, entity, topic_id=topic_id)


def decode_group(data: bytes) -> GroupValue:
    """Decode the value of a ``GroupKey``.

    Raises RecordError if the bytes are invalid, or their version is above 4.
    """
    entity = _read(_GROUP_METADATA_VALUE, _number(data), data)
    members = tuple(_plain(MemberValue, member) for member in entity.members)
    return _plain(GroupValue, entity, members=members)


def encode(entity: Any) -> bytes:
    """Encode an entity as Kafka writes it into a key or a value: its version, then its fields."""
    out = io.BytesIO()
    out.write(_VERSION.pack(entity.__version__))
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def _number(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise RecordError("a key or value without its version")
    number: int = _VERSION.unpack_from(data)[0]
    return number


def _read(message: _Message, version: int, data: bytes) -> Any:
    if version not in message.versions:
        raise RecordError(
            f"{message.name} of version {version}; Kafka 4.3 writes up to {message.versions[-1]}"
        )
    return _read_as(message, version, data)


def _read_as(message: _Message, version: int, data: bytes) -> Any:
    try:
        return read_entity(ENTITIES[message.name, version], data, _VERSION.size, MAX_ELEMENTS)
    except ProtocolError as error:
        raise RecordError(f"{message.name} of version {version}: {error}") from None


Plain = TypeVar("Plain")


def _plain(kind: type[Plain], entity: Any, **given: Any) -> Plain:
    """Return an object of ``kind`` with the values of an entity. ``given`` replaces some of them. A
    field that the entity lacks keeps its default.
    """
    names: Iterable[str] = (each.name for each in fields(kind))  # type: ignore[arg-type]
    known = {n: getattr(entity, n) for n in names if n not in given and hasattr(entity, n)}
    return kind(**known, **given)
