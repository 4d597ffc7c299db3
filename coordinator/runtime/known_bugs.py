"""Which requests have met a bug of the core before."""

from __future__ import annotations

from typing import Final

import msgspec

from groupkeeper.coordinator.core.requests import JoinGroup, Request

REMEMBERED: Final = 256


class KnownBugs:
    """Remembers the requests that raised inside the core, the last ones."""

    def __init__(self) -> None:
        """Know none."""
        self._fingerprints: dict[int, None] = {}

    def is_repeated(self, request: Request) -> bool:
        """Remember a request, and tell whether it had been remembered already."""
        fingerprint = _fingerprint(request)
        is_repeated = fingerprint in self._fingerprints
        if len(self._fingerprints) >= REMEMBERED:
            del self._fingerprints[next(iter(self._fingerprints))]
        self._fingerprints[fingerprint] = None
        return is_repeated


def _fingerprint(request: Request) -> int:
    """Tell whether two requests are the same; a minted id does not count."""
    if isinstance(request, JoinGroup):
        request = msgspec.structs.replace(request, new_member_id="")
    return hash(repr(request))
