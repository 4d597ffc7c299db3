"""The error that a test server raises, checks of arguments, and the client of its own requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from groupkeeper.coordinator.core.errors import ErrorCode, GroupError
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.embed.group_metadata import GroupMetadata

Offsets: TypeAlias = dict[tuple[str, int], int]
"""(topic, partition) -> committed offset."""

CLIENT: Final = Client("groupkeeper-testing", "127.0.0.1", "User:ANONYMOUS")


class TestingError(Exception):
    """The coordinator refused a direct call of a test. The message has Kafka's error code."""

    __test__ = False  # its name would make pytest collect it


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turn GroupError into TestingError, whose message names ``what``: a group or a call."""
    try:
        yield
    except GroupError as error:
        raise TestingError(f"{error.code.name}: {what}") from None


def check(error: ErrorCode, what: str) -> None:
    """Raise TestingError if the error is not NONE. The message names ``what``."""
    if error is not ErrorCode.NONE:
        raise TestingError(f"{error.name}: {what}")


def checked_offsets(offsets: Offsets) -> Offsets:
    """Return the argument. Raises TypeError if it is no mapping with keys (topic, partition).

    The values are not checked.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be {{(topic, partition): offset}}, not {offsets!r}")
    for key in offsets:
        if not (isinstance(key, tuple) and len(key) == 2):
            raise TypeError(f"the keys of offsets must be (topic, partition), not {key!r}")
    return offsets


def member_id_of(group: str, found: GroupMetadata | None, member: str) -> str:
    """Return the id of the member with this member id, instance id or client id.

    Raises TestingError if no member or several members match.
    """
    members = list(found.members.values()) if found else []
    by_id = [m for m in members if member in (m.member_id, m.group_instance_id)]
    named = by_id or [m for m in members if m.client_id == member]
    if len(named) == 1:
        return named[0].member_id
    known = ", ".join(f"{m.member_id} (client.id {m.client_id})" for m in members) or "nobody"
    problem = f"{len(named)} members are" if named else "no member is"
    raise TestingError(f"{group}: {problem} called {member!r}; its members are: {known}")
