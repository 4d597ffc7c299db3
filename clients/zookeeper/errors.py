"""What the registry refuses, under kazoo-go's names where it has one."""

from __future__ import annotations

from groupkeeper.storage.connections.zookeeper_errors import (
    NotAllowed,
    ServerUnreachable,
    SessionClosed,
    SessionLost,
    ZooKeeperError,
)

__all__ = [
    "BrokenNode",
    "CommitConflict",
    "InstanceAlreadyRegistered",
    "InstanceNotRegistered",
    "InvalidName",
    "NotAllowed",
    "PartitionClaimedByOther",
    "PartitionNotClaimed",
    "RegistrationChanged",
    "RegistryError",
    "RunningInstances",
    "ServerUnreachable",
    "SessionClosed",
    "SessionLost",
    "ZooKeeperError",
]


class RegistryError(ZooKeeperError):
    """A call to the registry was refused; the message is one line."""


class InvalidName(RegistryError, ValueError):
    """The name of a group, topic or instance, or a number, cannot stand in a path."""


class RunningInstances(RegistryError):
    """A group is not deleted while instances of it are registered."""


class InstanceAlreadyRegistered(RegistryError):
    """There is a registration of this id."""


class InstanceNotRegistered(RegistryError):
    """There is no registration of this id."""


class RegistrationChanged(RegistryError):
    """The registration was changed by another client between the look and the write."""


class PartitionClaimedByOther(RegistryError):
    """Another instance has claimed the partition."""

    def __init__(self, topic: str, partition: int, owner: str) -> None:
        super().__init__(f"{topic}-{partition} is claimed by {owner!r}")
        self.owner = owner
        """The id of the instance that has it."""


class PartitionNotClaimed(RegistryError):
    """The partition is not claimed by this instance."""


class CommitConflict(RegistryError):
    """Others committed the same offset again and again between our look and our write."""


class BrokenNode(RegistryError, ValueError):
    """A node holds what is no registration, offset or owner. The message names the node."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
