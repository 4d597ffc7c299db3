"""The errors of a session with ZooKeeper."""

from __future__ import annotations


class ZooKeeperError(Exception):
    """A call to ZooKeeper failed. The message is one line, and names the node or server if any."""


class ServerUnreachable(ZooKeeperError):
    """No server accepted a session in time."""


class SessionLost(ZooKeeperError):
    """The session has ended. All its ephemeral nodes are deleted, or will be soon."""


class SessionClosed(ZooKeeperError):
    """The session was closed by its owner, or was never opened."""


class NodeMissing(ZooKeeperError):
    """The node, or its parent, does not exist."""


class NodeExists(ZooKeeperError):
    """A node of this name exists."""


class NodeNotEmpty(ZooKeeperError):
    """The node has children, so it cannot be deleted."""


class NodeChanged(ZooKeeperError):
    """The node has another version than the expected one."""


class NotAllowed(ZooKeeperError):
    """The node's access list refuses this call, or the server does not know the credentials."""


class RequestTooLarge(ZooKeeperError, ValueError):
    """Path and value together are larger than a server accepts."""
