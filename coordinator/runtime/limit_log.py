"""Writes a log line when a limit that all groups share has refused a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from groupkeeper.coordinator.core.groups.census import Census, Limit
from groupkeeper.coordinator.runtime.line_limit import LineLimit

WINDOW_S: Final = 60.0
_RAISE_BUFFERS: Final = (
    "if these requests are yours, raise kafka.max_buffered_bytes: the limit is equal to it"
)

log = structlog.stdlib.get_logger(__name__)


class LimitLog:
    """Logs that a limit on groups refuses requests, at most one line a minute for each limit."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        """``clock_s`` returns the seconds of a monotonic clock."""
        self._lines = LineLimit(clock_s, WINDOW_S, 1)

    def refused(self, census: Census, limit: Limit, size_bytes: int) -> None:
        """Log that a limit has refused a request. ``size_bytes`` is the size that the metadata of
        the member, or the assignments of the group, would have. The limit on the number of groups
        does not use it.
        """
        if self._lines.allow(limit) is None:
            return
        if limit == "groups":
            log.warning(
                "group_limit_reached",
                groups=census.groups,
                for_long_ids=census.for_long_ids,
                max_groups=census.max_groups,
                refused=census.refused,
                advice="delete groups that nobody needs, or raise group.max_groups (2 KB a group)",
            )
        elif limit == "metadata":
            log.warning(
                "member_metadata_limit_reached",
                metadata_bytes=census.metadata_bytes,
                refused_bytes=size_bytes,
                max_metadata_bytes=census.max_metadata_bytes,
                advice=_RAISE_BUFFERS,
            )
        else:
            log.warning(
                "assignment_limit_reached",
                reserved_bytes=census.reserved_bytes,
                refused_bytes=size_bytes,
                max_metadata_bytes=census.max_metadata_bytes,
                advice=_RAISE_BUFFERS,
            )
