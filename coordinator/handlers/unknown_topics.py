"""Logs the names of topics that clients ask for and that do not exist. Such a name is often
misspelt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

import structlog

from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.runtime.line_limit import LinesOfMany

TOPIC_WINDOW_S: Final = 600.0
"""In this time, one topic causes at most one line. Clients ask for their topics again every few
minutes."""
WINDOW_S: Final = 60.0
LINES_PER_WINDOW: Final = 5
"""The largest number of lines in ``WINDOW_S`` seconds for all topics together."""
MAX_NAMES: Final = 10
"""How many names of one request are checked."""
MAX_CANDIDATES: Final = 500
"""The largest number of existing topics with which a missing name is compared. Each comparison
blocks the loop for about 20 us."""
_LENGTH_MAY_DIFFER: Final = 3
MAX_CLIENT_ID_CHARS: Final = 249

_log = structlog.get_logger("groupkeeper.topics")


class UnknownTopicLog:
    """Logs the names of missing topics that clients ask for, at a limited rate."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        """``clock_s`` returns the seconds of a monotonic clock."""
        self._lines = LinesOfMany(clock_s, TOPIC_WINDOW_S, WINDOW_S, LINES_PER_WINDOW)

    def asked(self, names: Iterable[str], client: Client, known: Collection[str]) -> None:
        """Log the missing topics among ``names``, for which a client has asked. At most
        ``LINES_PER_WINDOW`` lines are logged in ``WINDOW_S``. ``known`` has the existing topics.
        """
        for name in islice(names, MAX_NAMES):
            left_out = self._lines.allow(name)
            if left_out is None:
                continue
            _log.warning(
                "unknown_topic_asked",
                topic=name,
                nearest=nearest_topic(name, known),
                client_id=client.client_id[:MAX_CLIENT_ID_CHARS],
                client_host=client.client_host,
                left_out=left_out,
            )


def nearest_topic(name: str, known: Collection[str]) -> str | None:
    """Return the topic with the most similar name, or None if no name is similar."""
    alike = (t for t in known if abs(len(t) - len(name)) <= _LENGTH_MAY_DIFFER)
    found = get_close_matches(name, list(islice(alike, MAX_CANDIDATES)), n=1)
    return found[0] if found else None
