"""The bytes that clients of protocol type ``consumer`` send in JoinGroup and SyncGroup.

ConsumerProtocolSubscription and ConsumerProtocolAssignment consist of a version, then classic
(non-flexible) fields. Newer versions only add fields at the end, so an unknown version is read as
the newest known one. This module uses plain struct code, and accepts any bytes safely. The core
imports no other module of ``protocol``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

MAX_NAMES: Final = 20_000
MAX_NAME_BYTES: Final = 1024 * 1024
"""``MAX_NAMES`` and this limit the different names of topics in the subscriptions of one group.
Reading them takes 20 ms at most. If a thousand members subscribe to the same hundred topics, in
whatever order, a hundred names count.
"""
MAX_LISTED: Final = 30_000
"""The largest number of names in all different lists of topics of one group. A list with the same
names in another order is not a different one. A name that an earlier list has too counts as one
partition (``MAX_PARTS``).
"""
MAX_COMPARED: Final = 100_000
"""The largest number of names in lists of topics whose bytes differ from those of the last
``REMEMBERED_LISTS`` lists. They are compared with the known names, which takes 25 ms at most. Many
clients keep their topics in a set, so each process sends them in its own order.
"""
NAMES_PER_PART: Final = 2
"""This number of names in a list that was read before in another order counts as one partition
(``MAX_PARTS``)."""
REMEMBERED_LISTS: Final = 8
"""The largest number of lists of topics whose bytes are kept, to recognize an equal list at once. A
list is forgotten when this number of others was read since it was last used.
"""
MAX_PARTS: Final = 100_000
"""The largest number of partitions that are read for one request which changes a consumer group. A
topic with partitions counts as ``TOPIC_PARTS``. Reading them takes 50 ms at most."""
TOPIC_PARTS: Final = 2
"""A topic counts like this number of partitions. 1,000 members with one partition of ten topics
each, which they own and were assigned, count as 60,000."""

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")


class ConsumerProtocolError(ValueError):
    """The bytes are not valid in the consumer protocol."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics of a member and, from v1 on, the partitions that it owns.

    A field that the version lacks has its default.
    """

    version: int
    topics: list[str]
    user_data: bytes | None = None
    owned_partitions: dict[str, list[int]] = field(default_factory=dict)
    generation_id: int = -1
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerAssignment:
    """The partitions assigned to a member."""

    version: int
    partitions: dict[str, list[int]]
    user_data: bytes | None = None


def decode_subscription(data: bytes, most_parts: int | None = None) -> Subscription:
    """Read a subscription.

    Raises ConsumerProtocolError for invalid bytes, and for more than ``most_parts`` names and
    partitions.
    """
    reader = _Reader(data, most_parts)
    version = reader.version()
    count = reader.count(2)
    reader.charge(count)
    topics = [reader.string() for _ in range(count)]
    return reader.rest_of_subscription(version, topics)


def subscription_version(data: bytes) -> int:
    """Read only the version of a subscription. Raises ConsumerProtocolError if it has none."""
    return _Reader(data).version()


def subscribed_topics(data: bytes, max_names: int = MAX_NAMES) -> list[str]:
    """Read only the topics, and no more than the first ``max_names``. Raises ConsumerProtocolError.

    The topics have the same encoding in every version.
    """
    reader = _Reader(data)
    reader.version()
    return [reader.string() for _ in range(min(reader.count(2), max_names))]


def all_subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str]:
    """Read the topics of all members of a group.

    Raises ConsumerProtocolError for invalid bytes. Also raises it if the members have more names
    than ``MAX_NAMES``, ``MAX_NAME_BYTES``, ``MAX_LISTED`` or ``MAX_COMPARED`` allow.
    """
    lists = _TopicLists(MAX_NAME_BYTES)
    for data in subscriptions:
        reader = _Reader(data)
        reader.version()
        lists.read(reader)
    return frozenset().union(*lists.different())


def decode_assignment(data: bytes, most_parts: int | None = None) -> ConsumerAssignment:
    """Read an assignment.

    Raises ConsumerProtocolError for invalid bytes, and for more than ``most_parts`` names and
    partitions.
    """
    return _Reader(data, most_parts).assignment()


class MembersReader:
    """Reads what members of one group have sent, for one request that changes a consumer group.

    Raises ConsumerProtocolError for invalid bytes, and if all of it together exceeds ``MAX_NAMES``,
    ``MAX_LISTED``, ``MAX_COMPARED`` or ``MAX_PARTS``.
    """

    def __init__(self) -> None:
        self._parts_left = MAX_PARTS
        self._lists = _TopicLists()

    def subscription(self, data: bytes) -> Subscription:
        """Read a subscription. If an earlier one had the same topics, in whatever order, the result
        has the same list object as that one.
        """
        reader = _Reader(data, self._parts_left)
        version = reader.version()
        subscription = reader.rest_of_subscription(version, self._lists.read(reader))
        self._parts_left = reader.parts_left
        return subscription

    def assignment(self, data: bytes) -> ConsumerAssignment:
        """Read an assignment."""
        reader = _Reader(data, self._parts_left)
        assignment = reader.assignment()
        self._parts_left = reader.parts_left
        return assignment


def encode_subscription(subscription: Subscription) -> bytes:
    """Return the bytes of a subscription, with the fields of its version."""
    out = [_I16.pack(subscription.version), _I32.pack(len(subscription.topics))]
    out += [_string(topic) for topic in subscription.topics]
    out.append(_nullable_bytes(subscription.user_data))
    if subscription.version >= 1:
        out.append(_partitions(subscription.owned_partitions))
    if subscription.version >= 2:
        out.append(_I32.pack(subscription.generation_id))
    if subscription.version >= 3:
        rack_id = subscription.rack_id
        out.append(_I16.pack(-1) if rack_id is None else _string(rack_id))
    return b"".join(out)


def encode_assignment(assignment: ConsumerAssignment) -> bytes:
    """Return the bytes of an assignment. The layout is the same in every version."""
    head = _I16.pack(assignment.version)
    return head + _partitions(assignment.partitions) + _nullable_bytes(assignment.user_data)


class _TopicLists:
    """The different lists of topics in several subscriptions.

    Most members of a group subscribe to the same topics. So a list is compared with the last few
    lists first, then with all lists by its names, and only new names are decoded.
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        """``most_bytes`` limits the bytes of the different names; None is no limit."""
        self._names_left = MAX_NAMES
        self._listed_left = MAX_LISTED
        self._compared_left = MAX_COMPARED
        self._bytes_left = most_bytes
        self._recent: list[tuple[bytes, list[str]]] = []
        """The bytes of the last few lists, and the lists. The one used last is the first."""
        self._lists: dict[frozenset[bytes], list[str]] = {}
        """The names of a list as the bytes contain them -> the list."""
        self._names: dict[bytes, str] = {}
        """Each plain name (``_Reader.plain_names``), with the byte of its length before it."""

    def different(self) -> Iterable[list[str]]:
        """Return each list once, even if it was read in several orders."""
        return self._lists.values()

    def read(self, reader: _Reader) -> list[str]:
        """Read the next list. If it has the same names as an earlier one, return that one."""
        recent = self._recent
        for place, (raw, topics) in enumerate(recent):
            if reader.skips(raw):
                if place:
                    recent.insert(0, recent.pop(place))
                return topics
        start = reader.at
        count = reader.count(2)
        self._compared_left = _charged(self._compared_left, count, MAX_COMPARED)
        topics = self._plain(reader, count) or self._any(reader, count)
        recent.insert(0, (reader.since(start), topics))
        del recent[REMEMBERED_LISTS:]
        return topics

    def _plain(self, reader: _Reader, count: int) -> list[str] | None:
        """Read a list of plain names. Return None, and read nothing, if it has others."""
        plain = reader.plain_names(count)
        if not plain:
            return None
        key = frozenset(plain)
        topics = self._lists.get(key)
        if topics is not None:
            reader.charge(count // NAMES_PER_PART)
        else:
            new = key.difference(self._names)
            if any(not name or len(name) != name[0] + 1 for name in new):
                return None
            known = len(key) - len(new)
            self._charge(count, count - known, sum(map(len, new)))
            reader.charge(known)
            for name in new:
                self._names[name] = name[1:].decode("utf-8", "replace")
            topics = self._lists[key] = list(map(self._names.__getitem__, plain))
        reader.at += sum(map(len, plain)) + count
        return topics

    def _any(self, reader: _Reader, count: int) -> list[str]:
        """Read a list of names of whatever kind. All of them count as new."""
        self._charge(count, count, 0)
        names = [reader.take(reader.i16()) for _ in range(count)]
        self._charge(0, 0, sum(map(len, names)))
        key = frozenset([b"\0" + name for name in names])  # unlike the key of plain names
        topics = [name.decode("utf-8", "replace") for name in names]
        return self._lists.setdefault(key, topics)

    def _charge(self, listed: int, new: int, new_bytes: int) -> None:
        self._listed_left = _charged(self._listed_left, listed, MAX_LISTED)
        self._names_left = _charged(self._names_left, new, MAX_NAMES)
        if self._bytes_left is not None:
            self._bytes_left = _charged(self._bytes_left, new_bytes, MAX_NAME_BYTES)


def _charged(left: int, amount: int, most: int) -> int:
    if amount > left:
        raise ConsumerProtocolError(f"more than {most} names or bytes of topics to read")
    return left - amount


class _Reader:
    """Reads from the front, and checks every length against the number of remaining bytes."""

    def __init__(self, data: bytes, most_parts: int | None = None) -> None:
        self._data = data
        self.at = 0
        self.parts_left = len(data) if most_parts is None else most_parts
        """How much may still be read (``MAX_PARTS``). By default it is the number of bytes, which
        is no limit, because each part has at least one byte.
        """

    def take(self, length: int) -> bytes:
        end = self.at + length
        if length < 0 or end > len(self._data):
            raise ConsumerProtocolError("the bytes end early")
        taken = self._data[self.at : end]
        self.at = end
        return taken

    def skips(self, raw: bytes) -> bool:
        """Skip ``raw`` if it comes next. Return True if it was skipped."""
        if not self._data.startswith(raw, self.at):
            return False
        self.at += len(raw)
        return True

    def plain_names(self, count: int) -> list[bytes]:
        """Return the next names, each with the byte of its length before it, if all names are
        plain: they have 1 to 255 bytes, and none of these bytes is 0. Otherwise the result contains
        an entry that does not have the length that its first byte states, or it is empty. Nothing
        is skipped.

        A length has two bytes, and that of a plain name begins with 0. So zeros separate the names.
        Kafka allows no other names of topics. This takes a fifth of the time that ``string`` would.
        """
        parts = self._data[self.at :].split(b"\0", count)
        if len(parts) <= count or parts[0]:
            return []
        if count and (last := parts[count]):
            parts[count] = last[: last[0] + 1]
        return parts[1:]

    def since(self, start: int) -> bytes:
        """Return the bytes that were read since position ``start``."""
        return self._data[start : self.at]

    def i16(self) -> int:
        value: int = _I16.unpack(self.take(2))[0]
        return value

    def i32(self) -> int:
        value: int = _I32.unpack(self.take(4))[0]
        return value

    def version(self) -> int:
        version = self.i16()
        if version < 0:
            raise ConsumerProtocolError(f"version {version}")
        return version

    def count(self, least_bytes: int) -> int:
        count = self.i32()
        if count < 0 or count * least_bytes > len(self._data) - self.at:
            raise ConsumerProtocolError(f"a count of {count} is beyond the end")
        return count

    def charge(self, parts: int) -> None:
        self.parts_left -= parts
        if self.parts_left < 0:
            raise ConsumerProtocolError("there are too many names and partitions to read")

    def string(self) -> str:
        return self.take(self.i16()).decode("utf-8", "replace")

    def nullable_string(self) -> str | None:
        length = self.i16()
        return None if length < 0 else self.take(length).decode("utf-8", "replace")

    def nullable_bytes(self) -> bytes | None:
        length = self.i32()
        return None if length < 0 else self.take(length)

    def partitions(self) -> dict[str, list[int]]:
        result: dict[str, list[int]] = {}
        topics = self.count(6)
        self.charge(TOPIC_PARTS * topics)
        for _ in range(topics):
            topic = self.string()
            count = self.count(4)
            self.charge(count)
            numbers = struct.unpack(f">{count}i", self.take(4 * count))
            result.setdefault(topic, []).extend(numbers)
        return result

    def rest_of_subscription(self, version: int, topics: list[str]) -> Subscription:
        """Read the fields after the topics."""
        user_data = self.nullable_bytes()
        owned = self.partitions() if version >= 1 else {}
        generation_id = self.i32() if version >= 2 else -1
        rack_id = self.nullable_string() if version >= 3 else None
        return Subscription(version, topics, user_data, owned, generation_id, rack_id)

    def assignment(self) -> ConsumerAssignment:
        version = self.version()
        return ConsumerAssignment(version, self.partitions(), self.nullable_bytes())


def _string(text: str) -> bytes:
    data = text.encode()
    return _I16.pack(len(data)) + data


def _nullable_bytes(data: bytes | None) -> bytes:
    return _I32.pack(-1) if data is None else _I32.pack(len(data)) + data


def _partitions(partitions: dict[str, list[int]]) -> bytes:
    out = [_I32.pack(len(partitions))]
    for topic, numbers in partitions.items():
        out += [_string(topic), struct.pack(f">{len(numbers) + 1}i", len(numbers), *numbers)]
    return b"".join(out)
