"""The errors that calls of ZooKeeper raise. Their messages are one line, for users."""

from __future__ import annotations


class ZooKeeperError(Exception):
    """A call to ZooKeeper failed. The message is one line. It names the znode or the server, if the
    error is about one.
    """


class ServerUnreachable(ZooKeeperError):
    """No server accepted a session in time."""


class SessionLost(ZooKeeperError):
    """The session has ended. All its ephemeral znodes are deleted, or will be soon."""


class SessionClosed(ZooKeeperError):
    """The session was closed by its owner, or was never opened."""


class NodeMissing(ZooKeeperError):
    """The znode, or its parent, does not exist."""


class NodeExists(ZooKeeperError):
    """The znode cannot be created, because it exists."""


class NodeNotEmpty(ZooKeeperError):
    """The znode has children, so it cannot be deleted."""


class NodeChanged(ZooKeeperError):
    """The znode has another version than the expected one."""


class NotAllowed(ZooKeeperError):
    """The znode's access list refuses this call, or the server does not know the credentials."""


class RequestTooLarge(ZooKeeperError, ValueError):
    """The request is larger than a server accepts, so it was not sent."""


class TransactionRefused(ZooKeeperError):
    """An operation of a transaction failed, so none was done."""

    def __init__(self, position: int, error: ZooKeeperError) -> None:
        """``position`` is the position of the failed operation. ``error`` is the reason."""
        super().__init__(str(error))
        self.position = position
        self.error = error


class OutcomeUnknown(ZooKeeperError):
    """The connection broke before the answer. It is unknown whether the transaction was executed,
    or will be executed later.
    """
