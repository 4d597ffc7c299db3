"""The errors of readers, their iterators and their groups."""

from __future__ import annotations

from groupkeeper.storage.connections.consul_errors import (
    ConsulError,
    ConsulRefused,
    ConsulUnavailable,
)

__all__ = [
    "BadPosition",
    "CannotRead",
    "ConsulError",
    "ConsulRefused",
    "ConsulUnavailable",
    "HandedOver",
    "NoPartitionFree",
    "NoSuchPartition",
    "NoSuchTopic",
    "NotReachable",
    "OffsetOutOfRange",
    "PartitionLost",
    "ReaderClosed",
    "ReaderError",
    "SessionEnded",
]


class ReaderError(Exception):
    """The base class of the errors that this module defines. That of Consul's errors is
    ConsulError."""


class CannotRead(ReaderError):
    """A retry does not help: the broker refuses the request, or its bytes are unreadable."""


class NoSuchTopic(ReaderError):
    """The cluster has no such topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"the cluster has no topic {topic!r}")
        self.topic = topic


class NoSuchPartition(ReaderError):
    """The topic has no such partition."""

    def __init__(self, topic: str, partition: int, partitions: int) -> None:
        super().__init__(
            f"topic {topic!r} has no partition {partition}: it has {partitions}, from 0"
        )
        self.topic = topic
        self.partition = partition


class OffsetOutOfRange(ReaderError):
    """The offset is before the first message of the partition, or after its end."""

    def __init__(self, topic: str, partition: int, offset: int, first: int, end: int) -> None:
        super().__init__(
            f"offset {offset} of {topic!r}/{partition} is out of range: a read may begin at "
            f"{first} to {end}"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.first = first
        self.end = end


class NotReachable(ReaderError):
    """No leader of the partition answered within ``give_up_ms``."""


class PartitionLost(ReaderError):
    """This member must not read the partition any more. ``reason`` says why: for example it was
    handed over, its reader was closed, or the session has ended."""

    def __init__(self, topic: str, partition: int, reason: str) -> None:
        super().__init__(f"{topic!r}/{partition} is no longer ours: {reason}")
        self.topic = topic
        self.partition = partition
        self.reason = reason


class NoPartitionFree(ReaderError):
    """Each partition of the topic has an owner, and the caller did not want to wait."""

    def __init__(self, topic: str, partitions: int) -> None:
        super().__init__(f"all {partitions} partitions of {topic!r} have an owner")
        self.topic = topic


class ReaderClosed(ReaderError):
    """Raised by a call after the reader or its group was closed."""


class SessionEnded(PartitionLost):
    """The session of this member is over, so all its partitions are lost."""

    def __init__(self, group: str, reason: str) -> None:
        ReaderError.__init__(self, f"our partitions of group {group!r} are lost: {reason}")
        self.topic = ""
        self.partition = -1
        self.reason = reason


class HandedOver(PartitionLost):
    """The partition now belongs to the share of another member, which reads it after the
    hand-over."""


class BadPosition(ReaderError):
    """The value that Consul has for a position is not a valid offset."""
