"""Which groups of a shard subscribe to each topic. If a topic changes, only these are checked.

Classic groups are not in this map: their members watch the topics themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Set


class Subscribers:
    """Maps the name of a topic to the groups that subscribe to it. The topic need not exist."""

    def __init__(self) -> None:
        self._groups_of: dict[str, set[str]] = {}

    def change(self, group_id: str, was: Set[str], now: Set[str]) -> None:
        """Replace the topics of a group. A deleted group has none."""
        for topic in now - was:
            self._groups_of.setdefault(topic, set()).add(group_id)
        for topic in was - now:
            groups = self._groups_of[topic]
            groups.remove(group_id)
            if not groups:
                del self._groups_of[topic]

    def of(self, topics: Iterable[str]) -> list[str]:
        """Return the groups that subscribe to any of these topics, in order."""
        groups_of = self._groups_of
        return sorted({group for topic in topics for group in groups_of.get(topic, ())})
