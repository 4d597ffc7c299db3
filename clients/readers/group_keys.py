"""The keys of a group in Consul, and their values.

Below ``<prefix>/<group>/``:

- ``live/members/<topic>/<member>`` and ``live/owners/<topic>/<partition>``: Consul deletes them
  with the session of their member.
- ``positions/<topic>/<partition>``: the next offset to read, in digits. It outlives all sessions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from groupkeeper.clients.readers.errors import BadPosition
from groupkeeper.clients.readers.message import MOST_OFFSET
from groupkeeper.storage.connections.consul import ConsulEntry

PREFIX = "groupkeeper/readers"
MOST_PARTITIONS = 100_000
"""The largest number of partitions of one topic. They are limited because every member computes the
shares of all members."""
LONGEST_NAME = 249
"""The same limit as for the name of a topic in Kafka."""


class OwnedPartition(NamedTuple):
    """The owner of a partition, from the key of the partition's lock.

    ``session`` has the lock; it is None if the key is not locked. ``at_index`` is Consul's index of
    the last change of the key.
    """

    member: str
    session: str | None
    at_index: int


@dataclass(frozen=True)
class ConsulGroupView:
    """The members of a group and the owners of its partitions, at one index of Consul."""

    at_index: int = 0
    owners: Mapping[str, Mapping[int, OwnedPartition]] = field(default_factory=dict)
    """Topic -> partition -> its owner."""
    members: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Topic -> member -> the number of the topic's partitions that this member's program named."""


class GroupKeys:
    """The names of the keys that a group has in Consul."""

    def __init__(self, group: str, prefix: str = PREFIX) -> None:
        self.group = checked_name(group, "group")
        self.root = f"{prefix}/{group}/"
        self.live = f"{self.root}live/"

    def owner(self, topic: str, partition: int) -> str:
        """Return the key of a partition's lock. Its value is the id of the member."""
        return f"{self.live}owners/{topic}/{partition}"

    def member(self, topic: str, member: str) -> str:
        """Return the key of a member that shares the partitions of a topic."""
        return f"{self.live}members/{topic}/{member}"

    def position(self, topic: str, partition: int) -> str:
        """Return the key that has the next offset to read in a partition."""
        return f"{self.root}positions/{topic}/{partition}"

    def view(self, at_index: int, entries: Iterable[ConsulEntry]) -> ConsulGroupView:
        """Return the view of a group from the entries below ``live``. Unknown keys are skipped."""
        owners: dict[str, dict[int, OwnedPartition]] = {}
        members: dict[str, dict[str, int]] = {}
        for entry in entries:
            match entry.key.removeprefix(self.live).split("/"):
                case ["owners", topic, partition] if is_partition(partition):
                    owned = OwnedPartition(
                        entry.value.decode(errors="replace"), entry.session, entry.at_index
                    )
                    owners.setdefault(topic, {})[int(partition)] = owned
                case ["members", topic, member]:
                    members.setdefault(topic, {})[member] = _partitions(entry.value)
                case _:
                    pass
        return ConsulGroupView(at_index, owners, members)


def checked_name(name: str, what: str) -> str:
    """Return ``name`` unchanged. Raises ValueError if it cannot be a part of a key. ``what`` is the
    kind of name, for the message.
    """
    if name in ("", ".", "..") or len(name) > LONGEST_NAME or re.search(r"[/\x00-\x1f\x7f]", name):
        raise ValueError(
            f"{name[:LONGEST_NAME]!r} cannot name a {what}: must be 1 to {LONGEST_NAME} characters "
            "without '/' and control characters"
        )
    return name


def is_partition(text: str) -> bool:
    """Return True if a part of a key is the number of a partition."""
    return re.fullmatch(r"[0-9]{1,10}", text) is not None


def read_position(entry: ConsulEntry) -> int:
    """Read a position. Raises BadPosition, with the key, if it is not a valid offset."""
    text = entry.value.decode(errors="replace")
    if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) > MOST_OFFSET:
        raise BadPosition(f"{entry.key} holds {text[:40]!r}, which is no offset")
    return int(text)


def _partitions(value: bytes) -> int:
    try:
        count = json.loads(value)["partitions"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return 0
    return count if isinstance(count, int) and 0 <= count <= MOST_PARTITIONS else 0
