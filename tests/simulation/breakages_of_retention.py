"""Bugs in how long offsets are kept, and in the removal of empty groups.

The table of ``breakages`` includes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from groupkeeper.coordinator.core.classic.group import ClassicGroup
from groupkeeper.coordinator.core.offsets import retention
from groupkeeper.coordinator.core.records import OffsetsCommitted
from groupkeeper.coordinator.core.state import ShardState

Patch = pytest.MonkeyPatch


def retention_of_a_commit_is_not_stored(patch: Patch) -> None:
    record = ShardState.record

    def without(self: ShardState, made: Any, size_bytes: int = 0) -> None:
        if isinstance(made, OffsetsCommitted):
            made = msgspec.structs.replace(made, expire_time_ms=-1)
        record(self, made, size_bytes)

    patch.setattr(ShardState, "record", without)


def expires_at_once(patch: Patch) -> None:
    patch.setattr(retention, "_is_expired", lambda *_: True)


def consumed_offsets_expire(patch: Patch) -> None:
    expiry = ClassicGroup.offset_expiry

    def without_topics(self: ClassicGroup) -> Any:
        found = expiry(self)
        return found and found._replace(kept_topics=frozenset())

    patch.setattr(ClassicGroup, "offset_expiry", without_topics)


def retention_of_a_commit_is_ignored(patch: Patch) -> None:
    is_expired = retention._is_expired

    def by_the_rule(shard: Any, rule: Any, retention_ms: int, offset: Any) -> bool:
        without = msgspec.structs.replace(offset, expire_time_ms=-1)
        return is_expired(shard, rule, retention_ms, without)

    patch.setattr(retention, "_is_expired", by_the_rule)


def offsets_never_expire(patch: Patch) -> None:
    patch.setattr(retention, "_is_expired", lambda *_: False)


def retention_of_a_commit_never_ends(patch: Patch) -> None:
    is_expired = retention._is_expired

    def for_ever(shard: Any, rule: Any, retention_ms: int, offset: Any) -> bool:
        return offset.expire_time_ms < 0 and is_expired(shard, rule, retention_ms, offset)

    patch.setattr(retention, "_is_expired", for_ever)


def groups_with_nothing_left_stay(patch: Patch) -> None:
    patch.setattr(retention, "_remove_group", lambda *_: None)


def nobody_looks_for_leftovers(patch: Patch) -> None:
    """The bug begins after the first pass."""
    patch.setattr(retention, "arm", lambda _: None)


GONE: Final = "should have gone"
"""The failure that a world reports if expired offsets are not deleted."""

RETENTION: Final[dict[str, tuple[Callable[[Patch], None], str]]] = {
    "a retention of a commit that is not stored": (
        retention_of_a_commit_is_not_stored,
        "is to be kept",
    ),
    "offsets that expire at once": (expires_at_once, "ms early|is consumed"),
    "offsets that expire while they are consumed": (consumed_offsets_expire, "is consumed"),
    "a retention of a commit that is ignored": (retention_of_a_commit_is_ignored, "ms early"),
    "offsets that never expire": (offsets_never_expire, GONE),
    "a retention of a commit that never ends": (retention_of_a_commit_never_ends, GONE),
    "groups with nothing left that stay": (groups_with_nothing_left_stay, r"'', -1\).*should have"),
    "offsets that are looked at once": (nobody_looks_for_leftovers, GONE),
}
"""As ``breakages.BREAKAGES``."""
