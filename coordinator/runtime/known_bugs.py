"""Remembers which requests have caused an exception in the core."""

from __future__ import annotations

from typing import Final

import msgspec

from groupkeeper.coordinator.core.requests.membership import JoinGroup
from groupkeeper.coordinator.core.requests.request import Request

REMEMBERED: Final = 256


class KnownBugs:
    """Remembers the last requests that raised an exception in the core, which is a bug."""

    def __init__(self) -> None:
        self._fingerprints: dict[int, None] = {}

    def is_repeated(self, request: Request) -> bool:
        """Remember a request. Return True if it was remembered before."""
        fingerprint = _fingerprint(request)
        is_repeated = fingerprint in self._fingerprints
        if len(self._fingerprints) >= REMEMBERED:
            del self._fingerprints[next(iter(self._fingerprints))]
        self._fingerprints[fingerprint] = None
        return is_repeated


def _fingerprint(request: Request) -> int:
    """Return a hash that is equal for equal requests. It leaves out the member id that we
    generated.
    """
    if isinstance(request, JoinGroup):
        request = msgspec.structs.replace(request, new_member_id="")
    return hash(repr(request))
