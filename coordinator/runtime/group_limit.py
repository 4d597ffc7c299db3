"""The limit on the number of groups, and the log line that reports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from groupkeeper.coordinator.core.groups.census import Census
from groupkeeper.coordinator.core.limits import MAX_METADATA_BYTES
from groupkeeper.coordinator.runtime.limited_log import LineLimit

WINDOW_S: Final = 60.0

log = structlog.stdlib.get_logger(__name__)


class GroupLimit(Census):
    """A census that logs, at most once a minute, that it refuses new groups."""

    def __init__(
        self,
        max_groups: int,
        clock_s: Callable[[], float],
        max_metadata_bytes: int = MAX_METADATA_BYTES,
    ) -> None:
        """``clock_s`` is monotonic."""
        super().__init__(max_groups, max_metadata_bytes)
        self._lines = LineLimit(clock_s, WINDOW_S, 1)

    def admits(self) -> bool:
        """Return whether one more group may be created."""
        if super().admits():
            return True
        if self._lines.take("") is not None:
            log.warning(
                "group_limit_reached",
                groups=self.groups,
                max_groups=self.max_groups,
                refused=self.refused,
                advice="delete groups that nobody needs, or raise group.max_groups (2 KB a group)",
            )
        return False

    def admits_assignment(self, size_bytes: int, added_bytes: int) -> bool:
        """Return whether a group may have assignments of this size."""
        if super().admits_assignment(size_bytes, added_bytes):
            return True
        if self._lines.take("assignment") is not None:
            log.warning(
                "assignment_limit_reached",
                assigned_bytes=self.assigned_bytes,
                refused_bytes=size_bytes,
                max_metadata_bytes=self.max_metadata_bytes,
                advice="raise kafka.max_buffered_bytes, which it is equal to, if these are yours",
            )
        return False

    def admits_metadata(self, size_bytes: int, added_bytes: int) -> bool:
        """Return whether a member may have metadata of this size."""
        if super().admits_metadata(size_bytes, added_bytes):
            return True
        if self._lines.take("metadata") is not None:
            log.warning(
                "member_metadata_limit_reached",
                metadata_bytes=self.metadata_bytes,
                refused_bytes=size_bytes,
                max_metadata_bytes=self.max_metadata_bytes,
                advice="raise kafka.max_buffered_bytes, which it is equal to, if these are yours",
            )
        return False
