"""What a server for tests refuses, and how it says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.embed.group_metadata import GroupMetadata

Offsets: TypeAlias = dict[tuple[str, int], int]
"""(topic, partition) -> committed offset."""


class TestingError(Exception):
    """The coordinator refused what a test asked of it directly; the message has Kafka's code."""

    __test__ = False  # pytest would take the name for a class of tests


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """A test is told in one way."""
    try:
        yield
    except GroupError as error:
        raise TestingError(f"{error.code.name}: {what}") from None


def check(error: ErrorCode, what: str) -> None:
    """Raise TestingError for what is not NONE."""
    if error is not ErrorCode.NONE:
        raise TestingError(f"{error.name}: {what}")


def checked_offsets(offsets: Offsets) -> Offsets:
    """Return an argument that is offsets by topic and partition; what they are is not looked at."""
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be {{(topic, partition): offset}}, not {offsets!r}")
    for key in offsets:
        if not (isinstance(key, tuple) and len(key) == 2):
            raise TypeError(f"offsets are those of (topic, partition), not of {key!r}")
    return offsets


def member_id_of(group: str, found: GroupMetadata | None, member: str) -> str:
    """Find the one that a test means."""
    members = list(found.members.values()) if found else []
    by_id = [m for m in members if member in (m.member_id, m.group_instance_id)]
    named = by_id or [m for m in members if m.client_id == member]
    if len(named) == 1:
        return named[0].member_id
    known = ", ".join(f"{m.member_id} (client.id {m.client_id})" for m in members) or "nobody"
    problem = f"{len(named)} members are" if named else "no member is"
    raise TestingError(f"{group}: {problem} called {member!r}; its members are: {known}")
