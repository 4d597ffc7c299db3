"""The errors that calls of Consul raise."""

from __future__ import annotations

from collections.abc import Mapping


class ConsulError(Exception):
    """The base class of all errors of Consul."""


class ConsulUnavailable(ConsulError):
    """No agent or no leader answered. A retry may help."""


class ConsulRefused(ConsulError):
    """Consul refused the request: no permission, or an invalid request."""


def is_denied(error: ConsulRefused) -> bool:
    """Return True if the token lacks a right."""
    return "permission denied" in str(error)


class SessionGone(ConsulError):
    """The session of the request does not exist any more."""


class TransactionFailed(ConsulError):
    """An operation of a transaction failed, so none was executed."""

    def __init__(self, errors: Mapping[int, str]) -> None:
        """``errors`` has the reason of each failure, by the position of the failed operation."""
        super().__init__("; ".join(errors.values()))
        self.positions = frozenset(errors)

    @property
    def position(self) -> int:
        """The position of the first operation that failed."""
        return min(self.positions)
