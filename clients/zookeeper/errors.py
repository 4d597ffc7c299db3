"""The errors of ``Registry``, the client for groups in ZooKeeper. Errors that kazoo-go also has
have the same names here.
"""

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
    """The registry refused a call. The message is one line."""


class InvalidName(RegistryError, ValueError):
    """A name cannot be part of a path in ZooKeeper, or a number is out of range."""


class RunningInstances(RegistryError):
    """The group cannot be deleted, because instances of it are registered."""


class InstanceAlreadyRegistered(RegistryError):
    """The group has a registered instance with this id, which may be another process."""


class InstanceNotRegistered(RegistryError):
    """No instance with this id is registered."""


class RegistrationChanged(RegistryError):
    """Another client changed the registration between our read and our write."""


class PartitionClaimedByOther(RegistryError):
    """Another instance has claimed the partition."""

    def __init__(self, topic: str, partition: int, owner: str) -> None:
        super().__init__(f"{topic}-{partition} is claimed by {owner!r}")
        self.owner = owner
        """The id of the instance that has claimed the partition."""


class PartitionNotClaimed(RegistryError):
    """This instance has not claimed the partition."""


class CommitConflict(RegistryError):
    """Each attempt to commit failed, because another client changed the same offset between our
    read and our write.
    """


class BrokenNode(RegistryError, ValueError):
    """The content of a znode is not a valid registration, offset or owner. The message names the
    znode.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
