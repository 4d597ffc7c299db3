"""Which groups of a shard subscribe to each topic. If a topic changes, only these are checked.

Classic groups are not in this map: their members watch the topics themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Set


class Subscribers:
    """Maps the name of a topic to the groups that subscribe to it. The topic need not exist."""

    def __init__(self) -> None:
        self._groups_of: dict[str, Set[str]] = {}
        """The topics of which a group is the only one share one frozen set: a member may subscribe
        to 20,000."""

    def change(self, group_id: str, was: Set[str], now: Set[str]) -> None:
        """Replace the topics of a group. A deleted group has none."""
        groups_of = self._groups_of
        added = now - was
        alone = frozenset(added).difference(groups_of)
        for topic in added - alone:
            groups = groups_of[topic]
            if isinstance(groups, set):
                groups.add(group_id)
            else:
                groups_of[topic] = {*groups, group_id}
        groups_of.update(dict.fromkeys(alone, frozenset((group_id,))))
        for topic in was - now:
            groups = groups_of[topic]
            if len(groups) == 1:
                del groups_of[topic]
            else:
                assert isinstance(groups, set), "several groups are never frozen"
                groups.remove(group_id)

    def of(self, topics: Iterable[str]) -> list[str]:
        """Return the groups that subscribe to any of these topics, in order."""
        groups_of = self._groups_of
        return sorted({group for topic in topics for group in groups_of.get(topic, ())})
