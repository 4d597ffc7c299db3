"""Work that finds the topics whose names match the patterns of a consumer group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from groupkeeper.coordinator.core.work import Work


class PatternWork(Work, frozen=True, kw_only=True):
    """All patterns of a group, which are resolved together. The result is ``PatternMatches``."""

    patterns: tuple[str, ...]


class PatternMatches(NamedTuple):
    """The topics that match each pattern. The whole name must match."""

    topics_version: int
    """``TopicImage.version`` of the topics that were compared."""
    topics: Mapping[str, tuple[str, ...]]
    """Pattern -> the sorted names of the topics that match. A pattern that cannot be used in this
    process is left out: the group then keeps the topics that it had for it.
    """
