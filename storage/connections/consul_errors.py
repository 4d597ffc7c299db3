"""The errors that calls of Consul raise."""

from __future__ import annotations


class ConsulError(Exception):
    """The base class of all errors of Consul."""


class ConsulUnavailable(ConsulError):
    """No agent or no leader answered. A retry may help."""


class ConsulRefused(ConsulError):
    """Consul refused the request: no permission, or an invalid request."""


class SessionGone(ConsulError):
    """The session of the request does not exist any more."""
