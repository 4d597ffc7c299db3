"""The topics whose names match the patterns of a consumer group, as work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from groupkeeper.coordinator.core.work import Work


class PatternWork(Work, frozen=True, kw_only=True):
    """All patterns of a group, to resolve together. Its result is ``PatternMatches``."""

    patterns: tuple[str, ...]


class PatternMatches(NamedTuple):
    """The topics that exist, and match as a whole."""

    topics_version: int
    """``TopicImage.version`` of these topics."""
    topics: Mapping[str, tuple[str, ...]]
    """Pattern -> names, sorted. It lacks patterns that cannot be used in this process: their group
    keeps what it had."""
