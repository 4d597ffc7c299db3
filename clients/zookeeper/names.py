"""The paths of a group's znodes in ZooKeeper, and the names that they may contain (pure).

The paths are those of Kafka's classic consumers, which kazoo-go uses too.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from groupkeeper.clients.zookeeper.errors import BrokenNode, InvalidName

MAX_NAME_BYTES: Final = 1_000_000
"""The longest name. A path with this name must fit into one request to ZooKeeper, which has at most
1 MiB."""
MAX_PARTITION: Final = 2**31 - 1
MAX_OFFSET: Final = 2**63 - 1
CONSUMERS: Final = "consumers"

_NOT_IN_A_PATH: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
"""Characters that ZooKeeper refuses in a path (PathUtils.validatePath)."""


def checked_name(what: str, name: str) -> str:
    """Return the name. Raises InvalidName if it cannot be one part of a path."""
    if not isinstance(name, str):
        raise InvalidName(f"the {what} must be a text, not {type(name).__name__}")
    problem = _problem(name)
    if problem:
        shown = name if len(name) <= 60 else f"{name[:60]}..."
        raise InvalidName(f"the {what} {shown!r} {problem}")
    return name


def _problem(name: str) -> str:
    if not name:
        return "is empty"
    if name in (".", ".."):
        return "means another place in a path"
    if "/" in name:
        return "contains a slash, which separates the parts of a path"
    if bad := _NOT_IN_A_PATH.search(name):
        return f"contains {bad[0]!r}, which no path may contain"
    if len(name) > MAX_NAME_BYTES or len(name.encode()) > MAX_NAME_BYTES:
        return f"is longer than {MAX_NAME_BYTES} bytes"
    return ""


def checked_number(what: str, number: int, most: int, least: int = 0) -> int:
    """Return the number. Raises InvalidName if it is not an integer, or is out of range."""
    if type(number) is not int or not least <= number <= most:
        raise InvalidName(f"the {what} must be a number from {least} to {most}, not {number!r}")
    return number


class GroupPaths(NamedTuple):
    """The paths of the znodes of one group in ZooKeeper."""

    root: str
    """The group's own znode."""

    @classmethod
    def of(cls, chroot: str, group: str) -> GroupPaths:
        """Return the paths of a group. Raises InvalidName if its name cannot be part of a path."""
        return cls(f"{chroot}/{CONSUMERS}/{checked_name('group', group)}")

    @property
    def ids(self) -> str:
        return f"{self.root}/ids"

    @property
    def owners(self) -> str:
        return f"{self.root}/owners"

    @property
    def offsets(self) -> str:
        return f"{self.root}/offsets"

    def id(self, instance: str) -> str:
        """Return the path of the znode of a registration."""
        return f"{self.ids}/{checked_name('instance', instance)}"

    def owner(self, topic: str, partition: int) -> str:
        """Return the path of the znode of a claim."""
        return f"{self.owners}/{_partition(topic, partition)}"

    def offset(self, topic: str, partition: int) -> str:
        """Return the path of the znode that has the offset of a partition."""
        return f"{self.offsets}/{_partition(topic, partition)}"


def _partition(topic: str, partition: int) -> str:
    checked_number("partition", partition, MAX_PARTITION)
    return f"{checked_name('topic', topic)}/{partition}"


def text_of(path: str, data: bytes) -> str:
    """Return the content of a znode as text. Raises BrokenNode if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BrokenNode(path, "is not UTF-8") from None


def number_of(path: str, text: str, most: int = MAX_OFFSET) -> int:
    """Parse a decimal number as Go's strconv does. Raises BrokenNode if the text is not a number,
    or is out of range.
    """
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text) is None or not -most - 1 <= int(text) <= most:
        shown = text if len(text) <= 60 else f"{text[:60]}..."
        raise BrokenNode(path, f"{shown!r} is not a decimal number")
    return int(text)
